#pragma once
// Internal to ranges: how `linear` and `Ranges::expand` decompose an expression, and arithmetic on the results.
#include "ir/analysis/ranges.h"

namespace gradloom::ir {

struct Linearizer {
  const Ranges* scope = nullptr;  // lets to substitute, and variables with a single possible value
  Linear out;
  int64_t keep = 0;  // a variable that is not substituted even then
  void add(const Expr& e, int64_t factor);

 private:
  void add(const Linear& form, int64_t factor);
};

Linear scaled(const Linear& l, int64_t factor, int64_t constant = 0);  // l * factor + constant
Linear minus(const Linear& a, const Linear& b);
Linear without_constant(Linear l);
Linear single_term(const Expr& e);
bool same_terms(const Linear& a, const Linear& b);
bool same(const Linear& a, const Linear& b);
Linear as_inequality(BinaryOp op, const Linear& a, const Linear& b);  // lt, le, gt, ge of them as "l >= 0"

// A comparison that is uniform across lanes, reduced to one lane; absent: it is not uniform.
Expr of_one_lane(const Expr& condition);
bool is_integer(const Expr& e);  // or a boolean

// Whether e keeps its value across statements: it loads from inputs only.
bool is_stable(const Expr& e);

}  // namespace gradloom::ir
