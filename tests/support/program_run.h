#pragma once
// Runs random programs on every executor, in child processes, and minimises failing ones.
#include <cstdint>
#include <iostream>
#include <string>

#include "tests/support/environment.h"
#include "tests/support/random_program.h"

namespace gradloom::ir::testing {

struct ProgramOptions {
  int64_t first = 1, count = 0;
  int statements = 20;
  int64_t cuda = 1;  // one program in this many is compiled by the host's C++ compiler; 0: none
  bool print = false, shrink = false;
  int64_t most_failures = 3;  // the run stops after as many
};

struct ProgramCounts {
  int64_t programs = 0, skipped = 0, failed_checks = 0, compiled = 0, gpu_refused = 0, cuda = 0, failures = 0;
  int64_t slowest_us = 0, slowest_seed = 0;  // of lowering
};

// Prints each failing program: the failure, its text, scalars and data.
ProgramCounts run_programs(const ProgramOptions& options);

// Runs a program in that printed form: its text, with lines "// scalars:", "// origins:" and "// data:" above. Returns
// the failure, or an empty string.
std::string replay_program(const std::string& text);

// The failure of one program: the stage, and the message; empty when it passes.
struct ProgramFailure {
  std::string stage, what;
};

// `still_fails` is evaluated on ever smaller programs.
RandomProgram shrink_program(RandomProgram program, const std::function<bool(const RandomProgram&)>& still_fails);

}  // namespace gradloom::ir::testing
