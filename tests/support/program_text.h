#pragma once
// A failing program as text, as the files of tests/programs hold it, and read back.
#include <string>

#include "tests/support/program_run.h"

namespace gradloom::ir::testing {

void print_failure(const RandomProgram& program, const ProgramFailure& failure, int64_t seed);

RandomProgram read_program(const std::string& text);

}  // namespace gradloom::ir::testing
