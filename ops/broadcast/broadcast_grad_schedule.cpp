// The schedule of BroadcastGrad: kept dims and column tiles to threads; columns, or the 16 partials, to vectors.
#include "gradloom/schedule_common.h"
#include "ir/rewrite.h"
#include "ir/schedule/schedule_gpu.h"
#include "ops/broadcast/broadcast_grad.h"

namespace gradloom {
namespace {

using Loop = ir::Schedule::Loop;

// Parallelises one kept loop (the first with enough tasks, else the longest), or the tiles of columns.
void share(ir::Schedule& s, const std::vector<Loop>& kept, Loop tiles, const Plan& plan, const ReduceRoles& roles,
           const ir::Target& target) {
  const View& dy = plan.views[0];
  std::optional<Loop> best;
  int64_t most = 1;
  for (size_t i = 0; i < kept.size(); ++i) {
    const int64_t extent = dy.dims[roles.kept[i]];
    if (extent > most) best = kept[i], most = extent;
    if (extent >= wanted_tasks(target)) break;
  }
  if (most < wanted_tasks(target) && tiles) {
    const std::optional<int64_t> extent = ir::as_int(s.get(tiles).extent);
    if (!extent || *extent > most) return s.parallel(tiles);
  }
  if (!best) return;
  if (ir::holds_loop(s.get(*best).body)) return s.parallel(*best);
  // A copied row: pieces to threads, a piece's elements to vectors.
  const int64_t piece = row_piece(most, target);
  if (piece >= most) return;
  if (const Loop pieces = s.split(*best, piece).outer) s.parallel(pieces);
}

// Rows summed one after the other form one stream of reads; two streams far apart get more memory bandwidth.
Loop two_streams(ir::Schedule& s, Loop row) {
  const std::optional<int64_t> rows = ir::as_int(s.get(row).extent);
  if (!rows || *rows < 4) return row;
  const auto [half, in_half, tail] = s.split_guarded(row, (*rows + 1) / 2);
  s.reorder(half, in_half);
  return in_half;
}

// Whether a vector load of dY would be a gather of scalar loads.
bool gathers(const View& dy, const ir::Target& target) {
  const int64_t stride = dy.strides.empty() ? 1 : std::abs(dy.strides.back());
  return stride > 1 && !(target.hardware_scatter && size_of(dy.dtype) >= 4);
}

// With a vector register for each row of a block.
bool rows_at_once(const ir::Target& target) { return !target.gpu && target.vector_registers > partials; }

void vectorize_sums(ir::Schedule& s, const ir::ReductionLoops& loops, const View& dy, const ir::Target& target) {
  const bool scalar = gathers(dy, target);
  const int sum_bytes = size_of(accumulator_of(dy.dtype));
  for (const Loop loop : loops.stored) vectorize_elements(s, loop, sum_bytes, 2, target);
  for (const Loop loop : loops.summed) {
    const int64_t vector = 64 / sum_bytes, lanes = std::min(vector, ir::as_int(s.get(loop).extent).value_or(vector));
    if (!scalar && lanes > 1) s.vectorize(loop, static_cast<int>(lanes));
  }
  // The partials live in registers: a constant index each, or a vector lane.
  for (const Loop loop : loops.lanes)
    scalar || ir::as_int(s.get(loop).extent) == 1 ? s.unroll(loop) : s.vectorize(loop);
  if (scalar) return;
  for (const Loop loop : loops.steps) s.unroll(loop);
}

}  // namespace

void schedule_broadcast_direct(ir::Schedule& s, const SumNest& nest, const Plan& plan, const ir::Target& target) {
  const ir::ReductionLoops loops = nest.columns     ? s.expand_across(nest.columns, nest.tile, rows_at_once(target))
                                   : nest.reduction ? s.expand(nest.reduction)
                                                    : ir::ReductionLoops();
  if (target.gpu) {
    ir::schedule_gpu(s, target);
    std::vector<Loop> own = loops.lanes;
    own.insert(own.end(), loops.quads.begin(), loops.quads.end());
    return ir::unroll_left(s, own);
  }
  const ReduceRoles roles(plan);
  const View& dy = plan.views[0];
  std::vector<Loop> kept = nest.kept;
  if (!kept.empty() && !roles.columns() && !roles.reduced.empty() && plan.bytes_read > 4 * target.l2_bytes)
    kept.back() = two_streams(s, kept.back());
  if (worth_threads(plan.bytes_read + plan.bytes_written, target)) share(s, kept, loops.tiles, plan, roles, target);
  if (!roles.reduced.empty()) return vectorize_sums(s, loops, dy, target);
  if (gathers(dy, target)) return;
  for (const Loop loop : innermost_loops(s))
    vectorize_elements(s, loop, size_of(roles.accumulate ? accumulator_of(dy.dtype) : dy.dtype), 4, target);
}

void schedule_broadcast_split(ir::Schedule& s, const SumNest& nest, const Plan& plan, const ir::Target& target) {
  const ir::ReductionLoops loops = s.expand_parts(nest.reduction, nest.columns, nest.tile, rows_at_once(target));
  if (worth_threads(plan.bytes_read + plan.bytes_written, target)) {
    s.parallel(loops.parts);
    if (loops.tiles) s.parallel(loops.tiles);
  }
  vectorize_sums(s, loops, plan.views[0], target);
}

}  // namespace gradloom
