#pragma once
// Index arithmetic that folds trivial cases, so that rewritten loops stay readable and vector indices stay ramps.
// Scalars or vectors of i64.
#include "gradloom/expr.h"

namespace gradloom::ir {

Expr index_add(const Expr& a, const Expr& b);
Expr index_sub(const Expr& a, const Expr& b);
Expr index_mul(const Expr& a, const Expr& b);
Expr index_min(const Expr& a, const Expr& b);
Expr index_max(const Expr& a, const Expr& b);
Expr index_div(const Expr& a, int64_t b);  // floor_div, b > 0
Expr index_mod(const Expr& a, int64_t b);  // floor_mod, b > 0

bool has_load(const Expr& e);
// The first lane of a vector, simplified; a scalar is itself.
Expr first_lane(const Expr& e);
// Both conditions; an absent one is true.
Expr both(const Expr& a, const Expr& b);

}  // namespace gradloom::ir
