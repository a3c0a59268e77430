#pragma once
// Scalars, dims and buffers of a random program, with their facts and initial contents.
#include "tests/support/random_program_draw.h"
#include "tests/support/random_program_scope.h"

namespace gradloom::ir::testing {

class ProgramParameters : ProgramDraw {
 public:
  ProgramParameters(std::mt19937_64& random, ProgramScope& scope) : ProgramDraw(random), scope_(scope) {}

  void scalar();
  void dimension();
  Array parameter(DType t, Role role);
  void input();
  void contents(const Array& array, RandomProgram& to);

 private:
  Array shape();

  ProgramScope& scope_;
};

}  // namespace gradloom::ir::testing
