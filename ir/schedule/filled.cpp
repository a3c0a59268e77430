#include "ir/schedule/filled.h"

#include <algorithm>

namespace gradloom::ir {

bool writes_region(const Stmt& body, const Buffer& buffer, const std::vector<Expr>& begin,
                   const std::vector<Expr>& extent, const Ranges& known, bool* partly) {
  Stmt s = body;
  for (bool inside = true; inside;) {
    inside = false;
    if (const Alloc* a = s.as<Alloc>()) s = a->body, inside = true;
    if (const Block* b = s.as<Block>()) {
      const auto first =
          std::find_if(b->stmts.begin(), b->stmts.end(), [&](const Stmt& p) { return !accesses(p, buffer).empty(); });
      if (first == b->stmts.end()) return false;
      s = *first;
      inside = true;
    }
  }
  std::vector<const For*> loops;
  std::vector<Expr> conditions;
  for (bool inside = true; inside;) {
    inside = true;
    if (const For* f = s.as<For>()) {
      loops.push_back(f), s = f->body;
    } else if (const If* i = s.as<If>(); i && !i->else_case) {
      conditions.push_back(i->condition), s = i->then_case;
    } else if (const Block* b = s.as<Block>(); b && accesses(s, buffer).size() == 1) {
      s = *std::find_if(b->stmts.begin(), b->stmts.end(), [&](const Stmt& p) { return !accesses(p, buffer).empty(); });
    } else {
      inside = false;
    }
  }
  const Store* st = s.as<Store>();
  if (!st || st->guard || !st->buffer.same_as(buffer) || accesses(s, buffer).size() != 1) return false;
  if (partly) *partly = !conditions.empty();
  if (!conditions.empty()) {
    Ranges there = known;
    for (const For* f : loops) there.enter(*f);
    for (size_t d = 0; d < begin.size(); ++d) there.assume((0 <= st->index[d]) & (st->index[d] < buffer->dims[d]));
    for (const Expr& c : conditions)
      if (there.proves(c) != true) return false;
  }
  return covers_region(loops, st->index, begin, extent);
}

bool filled_before(const Site& site, const Buffer& buffer, const std::vector<Expr>& begin,
                   const std::vector<Expr>& extent) {
  const std::vector<Expr> origin(begin.size(), Expr(0));
  for (size_t i = 0; i + 1 < site.path.size(); ++i) {
    const Block* b = site.path[i].as<Block>();
    if (!b) continue;
    for (const Stmt& earlier : b->stmts) {
      if (earlier.same_as(site.path[i + 1])) break;
      if (writes_region(earlier, buffer, begin, extent, site.scope) ||
          writes_region(earlier, buffer, origin, buffer->dims, site.scope))
        return true;
    }
  }
  return false;
}

}  // namespace gradloom::ir
