#pragma once
// Expressions of a random program, over the values in scope: arbitrary ones, and those that a use requires to be in
// range, nonzero or independent of memory.
#include "tests/support/random_program_draw.h"
#include "tests/support/random_program_scope.h"

namespace gradloom::ir::testing {

class ProgramExpr : ProgramDraw {
 public:
  ProgramExpr(std::mt19937_64& random, ProgramScope& scope) : ProgramDraw(random), scope_(scope) {}

  Expr in_range(const Expr& at, const Expr& dim);
  Expr within(int64_t size, const Expr& dim, int lanes = 1);
  Expr condition(int lanes, int depth);
  int vector_lanes();
  Expr value(DType t, int lanes, int depth);
  Expr pure();

 private:
  Expr scalar_constant(DType t);
  Expr lanes_of(Expr e, int lanes);
  Expr leaf(DType t, int lanes);
  Expr read(DType t, int lanes);
  Expr divisor(DType t, int lanes);
  Expr shift_count(DType t, int lanes);
  Expr node(DType t, int lanes, int depth);

  ProgramScope& scope_;
  int depth_ = 0;
};

}  // namespace gradloom::ir::testing
