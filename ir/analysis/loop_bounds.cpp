#include "ir/analysis/loop_bounds.h"

#include <algorithm>
#include <optional>

#include "ir/index_math.h"
#include "ir/rewrite.h"

namespace gradloom::ir {

Expr ceil_div(const Expr& extent, int64_t factor, const Ranges& scope) {
  if (scope.sum_fits(extent, factor - 1)) return index_div(index_add(extent, factor - 1), factor);
  return index_add(index_div(index_sub(extent, 1), factor), 1);
}

Expr nonnegative(const Expr& extent, const Ranges& scope) {
  if (const std::optional<int64_t> n = as_int(extent)) return std::max<int64_t>(*n, 0);
  const Range r = scope.of(extent);
  return r.min && *r.min >= 0 ? extent : max(extent, 0);
}

Stmt Bounds::wrap(Stmt body) const {
  for (size_t i = lets.size(); i-- > 0;) body = let(lets[i].first, lets[i].second, body);
  return body;
}

Bounds read_once(const For& loop, const Ranges& scope) {
  Bounds bounds;
  const auto once = [&](const Expr& e, const char* suffix) {
    if (!has_load(e)) return e;
    const Var v = make_var(loop.var.name + suffix);
    bounds.lets.emplace_back(v, e);
    return var(v);
  };
  bounds.begin = once(loop.begin, "_b");
  bounds.extent = once(nonnegative(loop.extent, scope), "_n");
  return bounds;
}

}  // namespace gradloom::ir
