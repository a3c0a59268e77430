#include "ir/schedule/schedule_reductions.h"

#include <algorithm>

#include "ir/analysis/linear.h"
#include "ir/rewrite.h"
#include "ir/schedule/join_reductions.h"
#include "ir/schedule/nest_shape.h"
#include "ir/schedule/schedule_gpu.h"
#include "ir/schedule/site.h"

namespace gradloom::ir {
namespace {

constexpr int64_t shared_terms = 64 << 10;  // fewer are summed before other threads are awake
constexpr int64_t tile_bytes = 4096;        // of totals, which stay in the nearest cache beside the rows read
constexpr int64_t any_columns = 256;        // of a tile, where their number is not known
constexpr int64_t parts_columns = 64;       // of a tile of parts' totals
constexpr int64_t steps_at_once = 4;        // of a block: more are longer code, and no faster

// Of a term's loads, how many are of neighbours along the variable, and how many move along it otherwise.
struct Along {
  int neighbours = 0, apart = 0;
};
Along along(const Reduce& n, const Var& v) {
  Along result;
  const auto look = [&](const Expr& e) {
    const Load* l = e.as<Load>();
    if (!l) return;
    for (size_t d = 0; d < l->index.size(); ++d) {
      if (!mentions(l->index[d], v.id)) continue;
      const int64_t c = linear(l->index[d]).coefficient(var(v));
      const std::vector<Expr>& strides = l->buffer->strides;
      const bool near =
          strides.empty() ? d + 1 == l->index.size() : is_const(strides[d], 1) || is_const(strides[d], -1);
      ++(near && (c == 1 || c == -1) ? result.neighbours : result.apart);
      return;
    }
  };
  walk(n.value, look);
  if (n.factor) walk(n.factor, look);
  for (const Reduce::Definition& d : n.lets) walk(d.value, look);
  return result;
}

class Reductions {
 public:
  // `tiled`: sums of more columns than a tile are cut; else all their columns are summed at once where a block of rows
  // stays in L2.
  Reductions(Schedule& s, const Target& target, bool tiled) : s_(s), target_(target), tiled_(tiled) {}

  const std::vector<Loop>& tiles() const { return tiles_; }
  // Sums of columns that would fit uncut.
  bool has_wide() const { return wide_; }
  // Whether the blocks of rows of all sums of columns became part of other loops.
  bool all_joined() const {
    return std::none_of(expanded_.begin(), expanded_.end(), [&](const ExpandedReduction& e) {
      return !e.loops.summed.empty() && has_loop(s_, e.blocks);
    });
  }

  // The loops of all that were expanded: those that read the same as one, then vectors.
  void finish() {
    join_reductions(s_, expanded_);
    for (const Loop loop : join_rows(s_, expanded_, target_)) tiles_.push_back(loop);
    const std::vector<Loop> left = s_.loops();
    for (const ExpandedReduction& e : expanded_) widen(e, left);
  }

  void one(Loop reduction) {
    const Site site = find_reduction(s_.kernel(), reduction);
    const Reduce& n = *site.reduction;
    const For* around = nullptr;  // the innermost loop
    int loops = 0;
    for (const Stmt& s : site.path)
      if (const For* f = s.as<For>()) around = f, ++loops;
    const Along terms = along(n, n.ranges.back().var), columns = around ? along(n, around->var) : Along();
    const int bytes = size_of(n.buffer->dtype);
    const bool shares = target_.threads > 1 && n.order.kind == SumOrder::tree && n.ranges.size() == 1;
    const bool even = columns.neighbours == terms.neighbours;
    if (around && (columns.neighbours > terms.neighbours || (even && columns.apart < terms.apart))) {
      const Loop loop = around->var.id;
      int64_t tile = columns_together(around->extent, bytes);
      if (tile > 0 && rows_stay(n, around->extent, bytes)) {
        wide_ = true;
        if (!tiled_) tile = 0;
      }
      if (shares && loops == 1 && long_enough(n, around) && parts(reduction, loop, bytes)) return;
      if (expand(reduction, bytes, true, [&](Schedule& t) { return t.expand_across(loop, tile, rows_at_once()); }))
        return;
    }
    const bool gathers = terms.neighbours == 0;
    if (shares && loops == 0 && long_enough(n, nullptr) && parts(reduction, 0, bytes)) return;
    expand(reduction, bytes, !gathers, [&](Schedule& t) { return t.expand(reduction); });
  }

 private:
  bool rows_at_once() const { return target_.vector_registers > sum_partials; }

  // As many as keep their totals in the nearest cache, beside the rows that are read in long pieces; fewer where there
  // would be too few tiles for all threads. 0: all.
  int64_t columns_together(const Expr& extent, int64_t bytes) const {
    const std::optional<int64_t> columns = as_int(extent);
    if (!columns) return any_columns;
    const int64_t line = line_bytes / bytes, each = (*columns + target_.threads - 1) / target_.threads;
    const int64_t tile =
        std::clamp<int64_t>((each + line - 1) / line * line, 1, std::clamp<int64_t>(*columns, 1, tile_bytes / bytes));
    return tile < *columns ? tile : 0;
  }
  // Whether L2 has room for a block's rows of two inputs.
  bool rows_stay(const Reduce& n, const Expr& columns, int64_t bytes) const {
    const std::optional<int64_t> count = as_int(columns);
    return n.order.block == sum_partials && count && *count <= target_.l2_bytes / (2 * sum_partials * bytes);
  }
  static bool long_enough(const Reduce& n, const For* columns) {
    const auto terms = as_int(n.ranges[0].extent), each = columns ? as_int(columns->extent) : 1;
    const int64_t part = sum_part_blocks * n.order.block;
    return (!terms || *terms > part) && (!terms || !each || *terms >= shared_terms / std::max<int64_t>(*each, 1));
  }

  bool parts(Loop reduction, Loop columns, int bytes) {
    return expand(reduction, bytes, true,
                  [&](Schedule& t) { return t.expand_parts(reduction, columns, parts_columns, rows_at_once()); });
  }

  bool expand(Loop reduction, int bytes, bool vectors, const std::function<ReductionLoops(Schedule&)>& step) {
    const std::vector<Loop> before = s_.loops();
    const Expr terms = s_.get_reduction(reduction).ranges.back().extent;
    const SumOrder order = s_.get_reduction(reduction).order;
    const int64_t block = order.kind == SumOrder::tree ? order.block : 0;
    ReductionLoops loops;
    if (!s_.attempt([&](Schedule& trial) { loops = step(trial); })) return false;
    if (loops.tiles) tiles_.push_back(loops.tiles);
    const std::vector<Loop> roots = new_roots(s_, before);
    const auto blocks = std::find_if(roots.begin(), roots.end(), [&](Loop l) { return holds_loop(s_.get(l).body); });
    expanded_.push_back({loops, roots, blocks == roots.end() ? 0 : *blocks, terms, block, bytes, vectors});
    return true;
  }

  // Makes vectors of what is contiguous, else unrolled copies of the partials; parts go to threads. Loops that became
  // one with another's are left to that one.
  void widen(const ExpandedReduction& e, const std::vector<Loop>& all) {
    const ReductionLoops& loops = e.loops;
    const auto left = [&](Loop loop) { return std::find(all.begin(), all.end(), loop) != all.end(); };
    const auto lanes_of = [&](Loop loop, int64_t most) {
      if (!left(loop)) return;
      const int64_t lanes = std::min(most, as_int(s_.get(loop).extent).value_or(most));
      if (lanes > 1) s_.attempt([&](Schedule& trial) { trial.vectorize(loop, static_cast<int>(lanes)); });
    };
    if (loops.parts && left(loops.parts)) s_.attempt([&](Schedule& trial) { trial.parallel(loops.parts); });
    for (const Loop loop : loops.stored) lanes_of(loop, std::max(2, target_.lanes(e.bytes)));
    for (const Loop loop : loops.summed) lanes_of(loop, line_bytes / e.bytes);
    for (const Loop loop : loops.lanes) {
      if (!left(loop)) continue;
      const bool one = as_int(s_.get(loop).extent) == 1;
      if (!e.vectors || one || !s_.attempt([&](Schedule& trial) { trial.vectorize(loop); }))
        s_.attempt([&](Schedule& trial) { trial.unroll(loop); });
    }
    if (!e.vectors) return;
    for (const Loop loop : loops.steps)
      if (left(loop))
        s_.attempt([&](Schedule& trial) {
          const Schedule::Split cut = trial.split(loop, steps_at_once);
          if (cut.inner) trial.unroll(cut.inner);
        });
  }

  Schedule& s_;
  const Target& target_;
  const bool tiled_;
  bool wide_ = false;
  std::vector<Loop> tiles_;
  std::vector<ExpandedReduction> expanded_;
};

}  // namespace

std::vector<Loop> schedule_reductions_cpu(Schedule& schedule, const Target& target) {
  std::vector<Loop> tiles;
  bool wide = false;
  const auto with = [&](Schedule& s, bool tiled) {
    Reductions all(s, target, tiled);
    for (const Loop reduction : s.reductions()) all.one(reduction);
    all.finish();
    wide = all.has_wide();
    if (!tiled && !all.all_joined()) throw ScheduleRefusal("sums of many columns are no part of other loops");
    tiles = all.tiles();
  };
  Schedule cut = schedule;
  with(cut, true);
  if (!wide || !schedule.attempt([&](Schedule& trial) { with(trial, false); })) schedule = cut;
  return tiles;
}

std::vector<Loop> schedule_reductions_gpu(Schedule& schedule) {
  std::vector<Loop> own;
  for (const Loop reduction : schedule.reductions()) {
    const ReductionLoops loops = schedule.expand(reduction);
    own.insert(own.end(), loops.lanes.begin(), loops.lanes.end());
    own.insert(own.end(), loops.quads.begin(), loops.quads.end());
  }
  return own;
}

namespace {

Loop fused(Schedule& s, const std::vector<Loop>& loops) {
  Loop one = loops[0];
  for (size_t i = 1; i < loops.size(); ++i) one = s.fuse(one, loops[i]);
  return one;
}

// Neighbours of a tile: 32 columns, a cache line of f32; of rows as many as fill a thread block with partials.
int64_t staged_width(const Reduce& n) {
  constexpr int64_t columns = 32, threads = 512, most_rows = 32;
  if (n.order.block == sum_partials) return columns;
  const std::optional<int64_t> terms = as_int(n.ranges.back().extent);
  const int64_t blocks =
      terms ? std::clamp<int64_t>((*terms + n.order.block - 1) / n.order.block, 1, sum_part_blocks) : sum_part_blocks;
  return std::clamp<int64_t>(threads / (blocks * sum_partials), 1, most_rows);
}

}  // namespace

void schedule_staged_gpu(Schedule& s, Loop reduction, Loop around, const Target& target) {
  const StagedLoops loops = s.expand_staged(reduction, staged_width(s.get_reduction(reduction)), around);
  // Fuses as many of the grid's loops as are still proved independent once fused; the outer ones stay host loops.
  std::vector<Loop> grid = loops.grid;
  while (grid.size() > 1 && !s.attempt([&](Schedule& trial) { trial.bind(fused(trial, grid), ForKind::grid); }))
    grid.erase(grid.begin());
  if (grid.size() == 1) s.bind(grid[0], ForKind::grid);
  std::vector<std::vector<Loop>> phases = loops.phases;
  // Loads of neighbours as vectors, 16 bytes of f32: the loop over vectors goes to threads.
  constexpr int64_t together = 4;
  Loop& neighbours = phases[0].back();
  if (const std::optional<int64_t> n = as_int(s.get(neighbours).extent); n && *n % together == 0)
    s.attempt([&](Schedule& trial) {
      const Schedule::Split cut = trial.split(neighbours, together);
      trial.vectorize(cut.inner);
      neighbours = cut.outer;
    });
  for (const std::vector<Loop>& phase : phases) s.bind(fused(s, phase), ForKind::thread);
  for (const Loop loop : loops.totals) schedule_gpu(s, loop, target);
}

}  // namespace gradloom::ir
