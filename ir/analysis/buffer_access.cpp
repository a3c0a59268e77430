#include "ir/analysis/buffer_access.h"

#include <algorithm>

#include "ir/analysis/ranges.h"
#include "ir/index_math.h"
#include "ir/rewrite.h"

namespace gradloom::ir {

std::vector<BufferAccess> accesses(const Stmt& root, const Buffer& buffer) {
  std::vector<BufferAccess> result;
  Stmt current;
  walk(
      root,
      [&](const Stmt& s) {
        current = s;
        if (const Store* n = s.as<Store>(); n && n->buffer.same_as(buffer)) result.push_back({s, n->index, true});
        if (const Accumulate* n = s.as<Accumulate>(); n && n->buffer.same_as(buffer))
          result.push_back({s, n->index, true});
        if (const Reduce* n = s.as<Reduce>(); n && n->buffer.same_as(buffer)) result.push_back({s, n->index, true});
      },
      [&](const Expr& e) {
        if (const Load* n = e.as<Load>(); n && n->buffer.same_as(buffer)) result.push_back({current, n->index, false});
      });
  return result;
}

bool covers_region(const std::vector<const For*>& loops, const std::vector<Expr>& index, const std::vector<Expr>& begin,
                   const std::vector<Expr>& extent) {
  std::vector<bool> used(loops.size(), false);
  for (size_t d = 0; d < begin.size(); ++d) {
    const Linear rest = linear(index_sub(index[d], begin[d]));
    if (rest.terms.empty()) {
      if (rest.constant != 0 || !is_const(extent[d], 1)) return false;
      continue;
    }
    const auto own =
        std::find_if(loops.begin(), loops.end(), [&](const For* f) { return mentions(index[d], f->var.id); });
    if (own == loops.end() || used[static_cast<size_t>(own - loops.begin())]) return false;
    used[static_cast<size_t>(own - loops.begin())] = true;
    // index - begin == variable - its loop's begin, and the loop is as long as the window.
    const Linear offset = linear(index_sub(to_expr(rest), index_sub(var((*own)->var), (*own)->begin)));
    const Linear length = linear(index_sub((*own)->extent, extent[d]));
    if (!offset.exact || !length.exact || !offset.terms.empty() || offset.constant != 0 || !length.terms.empty() ||
        length.constant != 0)
      return false;
  }
  // A loop whose variable no index uses must run at least once.
  for (size_t i = 0; i < loops.size(); ++i)
    if (!used[i] && as_int(loops[i]->extent).value_or(0) < 1) return false;
  return true;
}

bool may_clobber(const Stmt& s, const Expr& e) {
  return any_of(e, [&](const Expr& x) { return x.as<Load>() && writes(s, x.as<Load>()->buffer); });
}

}  // namespace gradloom::ir
