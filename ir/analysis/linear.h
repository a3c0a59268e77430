#pragma once
// Inside of ranges: how `linear` and `Ranges::expand` take an expression apart, and arithmetic on what they get.
#include "ir/analysis/ranges.h"

namespace gradloom::ir {

struct Linearizer {
  const Ranges* scope = nullptr;  // lets to put in, and variables that can have one value only
  Linear out;
  int64_t keep = 0;  // a variable that stays, even so
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

// A comparison that is the same in all lanes, of one lane; absent: it is not.
Expr of_one_lane(const Expr& condition);
bool is_integer(const Expr& e);  // or a boolean

// Whether e keeps its value when statements run: it loads from inputs only.
bool is_stable(const Expr& e);

}  // namespace gradloom::ir
