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
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i)
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
        a.block == b.block && a.bytes == b.bytes)
      for (size_t i = 0; i < std::min(a.roots.size(), b.roots.size()); ++i)  // of a last block some have more
        if (read_alike(s.get(a.roots[i]).body, s.get(b.roots[i]).body)) joined |= join_alike(s, a.roots[i], b.roots[i]);
    if (!joined) first = next;
  }
}

namespace {

// The rows of a loop, a part's worth at a time, and the sums of parts of their columns as one loop: the rows of a part
// and the blocks of its sums. What is left of both is appended to `rest`.
struct RowsAndBlocks {
  Loop rows, blocks;
};
RowsAndBlocks join_parts(Schedule& s, Loop rows, Loop sums, int64_t part, int64_t count, std::vector<Loop>& rest) {
  if (count % part != 0) {
    const auto [whole, last] = s.partition(sums, count / part);
    sums = whole;
    rest.push_back(last);
  }
  const std::vector<Loop> inner = outermost_loops(s.get(sums).body);
  const auto blocks = std::find_if(inner.begin(), inner.end(), [&](Loop l) { return holds_loop(s.get(l).body); });
  if (blocks == inner.end()) throw ScheduleRefusal("a part has no blocks");
  const Schedule::Split parts = s.split(rows, part);
  if (parts.tail) rest.push_back(parts.tail);
  s.join(parts.outer, sums);
  rest.push_back(parts.outer);
  return {parts.inner, *blocks};
}

// The rows of a block, and then their columns. What became of the loops.
std::vector<Loop> join_blocks(Schedule& s, Loop rows, Loop sums, int64_t block, int64_t part, int64_t count) {
  std::vector<Loop> done;
  RowsAndBlocks both{rows, sums};
  if (count > part) both = join_parts(s, rows, sums, part, count, done);
  const Schedule::Split blocks = s.split(both.rows, block);
  if (!blocks.outer) throw ScheduleRefusal("its rows are fewer than a block");
  s.join(blocks.outer, both.blocks);
  if (count > part) return done;
  done.push_back(blocks.outer);
  if (blocks.tail) done.push_back(blocks.tail);
  return done;
}

}  // namespace

std::vector<Loop> join_rows(Schedule& s, const std::vector<ExpandedReduction>& all, const Target& target) {
  std::vector<Loop> done;
  for (const ExpandedReduction& sums : all) {
    const std::optional<int64_t> rows = known(sums.terms);
    if (!rows || sums.block != sum_partials || sums.loops.summed.empty()) continue;
    const int64_t part = sum_part_blocks * sums.block;
    if (target.threads > 1 && (!sums.loops.parts || *rows / part < target.threads)) continue;  // rows are shared alone
    const Loop root = sums.blocks;
    if (!has_loop(s, root)) continue;
    for (const Loop loop : outermost_loops(s.kernel().body)) {
      if (loop == root) break;
      if (known(s.get(loop).extent) != rows || !read_alike(s.get(loop).body, s.get(root).body)) continue;
      std::vector<Loop> joined;
      if (s.attempt([&](Schedule& trial) { joined = join_blocks(trial, loop, root, sums.block, part, *rows); })) {
        done.insert(done.end(), joined.begin(), joined.end());
        break;
      }
    }
  }
  return done;
}

}  // namespace gradloom::ir
