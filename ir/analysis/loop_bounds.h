#pragma once
// A loop's bounds as values for the arithmetic of schedule steps.
#include <utility>
#include <vector>

#include "gradloom/stmt.h"
#include "ir/analysis/ranges.h"

namespace gradloom::ir {

// ceil(extent / factor) for a nonnegative extent; no intermediate result wraps, whatever its size.
Expr ceil_div(const Expr& extent, int64_t factor, const Ranges& scope);

// The extent clamped to be nonnegative.
Expr nonnegative(const Expr& extent, const Ranges& scope);
// Wraps `body` so that bounds are read once: bounds that load from memory become lets around it.
struct Bounds {
  Expr begin, extent;
  std::vector<std::pair<Var, Expr>> lets;
  Stmt wrap(Stmt body) const;
};
Bounds read_once(const For& loop, const Ranges& scope);

}  // namespace gradloom::ir
