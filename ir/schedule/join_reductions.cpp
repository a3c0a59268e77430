#include "ir/schedule/join_reductions.h"

#include <algorithm>

#include "ir/reduction.h"
#include "ir/rewrite.h"
#include "ir/schedule/nest_shape.h"

namespace gradloom::ir {
namespace {

constexpr int64_t short_loop = 8;  // iterations: such as the folds of a block's partials, which read no memory

bool in(const std::vector<Loop>& loops, Loop loop) {
  return std::find(loops.begin(), loops.end(), loop) != loops.end();
}

// Whether both read a parameter.
bool read_alike(const Stmt& a, const Stmt& b) {
  std::vector<Buffer> read;
  walk(a, {}, [&](const Expr& e) {
    if (const Load* l = e.as<Load>(); l && l->buffer->role != Role::temp) read.push_back(l->buffer);
  });
  return any_of(b, [&](const Expr& e) {
    const Load* l = e.as<Load>();
    return l && std::any_of(read.begin(), read.end(), [&](const Buffer& x) { return x.same_as(l->buffer); });
  });
}

// The second as a part of the first, and so what is in both, one by one.
bool join_alike(Schedule& s, Loop first, Loop second) {
  const std::vector<Loop> a = outermost_loops(s.get(first).body), b = outermost_loops(s.get(second).body);
  if (known(s.get(first).extent).value_or(short_loop + 1) <= short_loop) return false;
  if (!s.attempt([&](Schedule& trial) { trial.join(first, second); })) return false;
  if (a.size() == b.size())
    for (size_t i = 0; i < a.size(); ++i)
      if (has_loop(s, a[i]) && has_loop(s, b[i])) join_alike(s, a[i], b[i]);
  return true;
}

}  // namespace

bool has_loop(const Schedule& s, Loop loop) { return in(s.loops(), loop); }

std::vector<Loop> new_roots(const Schedule& s, const std::vector<Loop>& before) {
  std::vector<Loop> roots, inside;
  for (const Loop loop : s.loops()) {
    if (in(before, loop) || in(inside, loop)) continue;
    roots.push_back(loop);
    for (const For* f : loops_below(s.get(loop).body)) inside.push_back(f->var.id);
  }
  return roots;
}

void join_reductions(Schedule& s, std::vector<ExpandedReduction>& all) {
  for (size_t first = 0, next = 1; next < all.size(); ++next) {
    const ExpandedReduction &a = all[first], &b = all[next];
    bool joined = false;
    // The loops of one may be gone by the expansion of another that stands in them.
    const auto stands = [&](Loop root) { return has_loop(s, root); };
    if (std::all_of(a.roots.begin(), a.roots.end(), stands) && std::all_of(b.roots.begin(), b.roots.end(), stands) &&
        a.block == b.block && a.bytes == b.bytes && a.roots.size() == b.roots.size())
      for (size_t i = 0; i < a.roots.size(); ++i)
        if (read_alike(s.get(a.roots[i]).body, s.get(b.roots[i]).body)) joined |= join_alike(s, a.roots[i], b.roots[i]);
    if (!joined) first = next;
  }
}

std::vector<Loop> join_rows(Schedule& s, const std::vector<ExpandedReduction>& all, const Target& target) {
  std::vector<Loop> done;
  for (const ExpandedReduction& sums : all) {
    const std::optional<int64_t> rows = known(sums.terms);
    if (!rows || sums.block != sum_partials || sums.loops.summed.empty()) continue;
    const int64_t part = sum_part_blocks * sums.block;
    if (target.threads > 1 && (!sums.loops.parts || *rows / part < target.threads)) continue;  // rows are shared alone
    for (const Loop root : sums.roots) {
      if (!has_loop(s, root) || !holds_loop(s.get(root).body)) continue;
      for (const Loop loop : outermost_loops(s.kernel().body)) {
        if (loop == root) break;
        if (known(s.get(loop).extent) != rows || !read_alike(s.get(loop).body, s.get(root).body)) continue;
        Loop whole = 0;
        const auto joined = s.attempt([&](Schedule& trial) {
          Loop rows_of_part = loop, blocks = root;
          if (*rows > part) {
            const Schedule::Split parts = trial.split(loop, part);
            if (!parts.outer || parts.tail) throw ScheduleRefusal("its rows are no whole parts");
            const std::vector<Loop> inner = outermost_loops(trial.get(root).body);
            const auto found =
                std::find_if(inner.begin(), inner.end(), [&](Loop l) { return holds_loop(trial.get(l).body); });
            if (found == inner.end()) throw ScheduleRefusal("a part has no blocks");
            blocks = *found;
            trial.join(parts.outer, root);
            rows_of_part = parts.inner, whole = parts.outer;
          }
          const Schedule::Split block = trial.split(rows_of_part, sums.block);
          if (!block.outer || block.tail) throw ScheduleRefusal("its rows are no whole blocks");
          trial.join(block.outer, blocks);
          if (!whole) whole = block.outer;
        });
        if (joined) done.push_back(whole);
        if (joined) break;
      }
    }
  }
  return done;
}

}  // namespace gradloom::ir
