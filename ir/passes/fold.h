#pragma once
// One node at a time: what an expression whose operands are simplified already becomes, with what a scope knows. Every
// bit is kept.
#include "ir/analysis/ranges.h"

namespace gradloom::ir {

Expr fold(const Expr& e, const Ranges& scope);

}  // namespace gradloom::ir
