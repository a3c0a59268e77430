#pragma once
// Folds a single node: simplifies an expression whose operands are already simplified, using the facts of a scope.
// Every bit is preserved.
#include "ir/analysis/ranges.h"

namespace gradloom::ir {

const Const* uniform(const Expr& e);  // a constant, or a broadcast of one

Expr fold(const Expr& e, const Ranges& scope);

}  // namespace gradloom::ir
