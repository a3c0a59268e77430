#pragma once
// A loop's bounds as values that steps compute with.
#include <utility>
#include <vector>

#include "gradloom/stmt.h"
#include "ir/analysis/ranges.h"

namespace gradloom::ir {

// ceil(extent / factor), for an extent that is not negative: whatever its size, no step of it wraps.
Expr ceil_div(const Expr& extent, int64_t factor, const Ranges& scope);

// The extent as a value that is never negative.
Expr nonnegative(const Expr& extent, const Ranges& scope);
// Runs `body` with bounds that are read once: those that load from memory become lets around it.
struct Bounds {
  Expr begin, extent;
  std::vector<std::pair<Var, Expr>> lets;
  Stmt wrap(Stmt body) const;
};
Bounds read_once(const For& loop, const Ranges& scope);

}  // namespace gradloom::ir
