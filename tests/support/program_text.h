#pragma once
// Text form of a failing program, as in the files of tests/programs: printed and parsed.
#include <string>

#include "tests/support/program_run.h"

namespace gradloom::ir::testing {

void print_failure(const RandomProgram& program, const ProgramFailure& failure, int64_t seed);

RandomProgram read_program(const std::string& text);

}  // namespace gradloom::ir::testing
