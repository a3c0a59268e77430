// The schedule of BroadcastGrad: kept dims and column tiles to threads; columns, or the 16 partials, to vectors.
#include "ir/rewrite.h"
#include "ir/schedule/schedule_gpu.h"
#include "ops/broadcast/broadcast_grad.h"
#include "ops/patterns/schedule_common.h"

namespace gradloom {
namespace {

using Loop = ir::Schedule::Loop;

// One kept loop (the first with enough tasks, else the longest), or the tiles of columns.
void share(ir::Schedule& s, const std::vector<Loop>& kept, const Plan& plan, const ReduceRoles& roles,
           const ir::Target& target) {
  if (!s.loops("add").empty()) {  // strategy "split"
    s.parallel(s.loop("parts"));
    for (const Loop tile : s.loops("tile")) s.parallel(tile);
    return;
  }
  const View& dy = plan.views[0];
  const std::vector<Loop> tiles = s.loops("tile");
  std::optional<Loop> best;
  int64_t most = 1;
  for (size_t i = 0; i < kept.size(); ++i) {
    const int64_t extent = dy.dims[roles.kept[i]];
    if (extent > most) best = kept[i], most = extent;
    if (extent >= wanted_tasks(target)) break;
  }
  if (most < wanted_tasks(target) && !tiles.empty()) {
    const std::optional<int64_t> extent = ir::as_int(s.get(tiles[0]).extent);
    if (!extent || *extent > most) return s.parallel(tiles[0]);
  }
  if (!best) return;
  if (ir::holds_loop(s.get(*best).body)) return s.parallel(*best);
  // One row, copied; a piece's elements go to vectors.
  const int64_t piece = row_piece(most, target);
  if (piece >= most) return;
  if (const Loop pieces = s.split(*best, piece).outer) s.parallel(pieces);
}

// Rows that are summed one after the other are one stream of reads; memory gives more to two that are far apart.
Loop two_streams(ir::Schedule& s, Loop row) {
  const std::optional<int64_t> rows = ir::as_int(s.get(row).extent);
  if (!rows || *rows < 4) return row;
  const auto [half, in_half, tail] = s.split_guarded(row, (*rows + 1) / 2);
  s.reorder(half, in_half);
  return in_half;
}

}  // namespace

bool schedule_empty_sums(ir::Schedule& s, const Plan& plan, const ir::Target& target) {
  if (s.loops("empty0").empty()) return false;
  if (target.gpu) return ir::schedule_gpu(s, target), true;
  const Loop outer = s.loop("empty0");
  const bool shared = target.threads > 1 && plan.bytes_read + plan.bytes_written >= parallel_bytes;
  if (shared && ir::holds_loop(s.get(outer).body)) s.parallel(outer);
  const DType dtype = plan.views[1].dtype;
  const int bytes = size_of(ReduceRoles(plan).accumulate ? accumulator_of(dtype) : dtype);
  for (const Loop loop : innermost_loops(s)) vectorize_elements(s, loop, bytes, 4, target);
  return true;
}

void schedule_broadcast_grad(ir::Schedule& s, const Plan& plan, const ir::Target& target) {
  if (target.gpu) {
    ir::schedule_gpu(s, target);
    // What a thread keeps of its sums has constant places: it is in registers.
    for (const char* name : {"quad", "lane", "half8", "half4", "half2", "half1"})
      for (const Loop loop : s.loops(name))
        if (s.get(loop).kind == ir::ForKind::serial) s.unroll(loop);
    return;
  }
  const ReduceRoles roles(plan);
  const View& dy = plan.views[0];
  std::vector<Loop> kept;
  while (!s.loops("p" + std::to_string(kept.size())).empty()) kept.push_back(s.loop("p" + std::to_string(kept.size())));
  if (!kept.empty() && !roles.columns() && !roles.reduced.empty() && plan.bytes_read > 4 * target.l2_bytes)
    kept.back() = two_streams(s, kept.back());
  if (target.threads > 1 && plan.bytes_read + plan.bytes_written >= parallel_bytes) share(s, kept, plan, roles, target);

  const int64_t stride = dy.strides.empty() ? 1 : std::abs(dy.strides.back());
  const bool gathers = stride > 1 && !(target.hardware_scatter && size_of(dy.dtype) >= 4);
  const int sum_bytes = size_of(accumulator_of(dy.dtype));
  if (roles.reduced.empty()) {
    for (const Loop loop : innermost_loops(s))
      if (!gathers) vectorize_elements(s, loop, roles.accumulate ? sum_bytes : size_of(dy.dtype), 4, target);
    return;
  }
  for (const char* name : {"zero", "store"})
    for (const Loop loop : s.loops(name)) vectorize_elements(s, loop, sum_bytes, 2, target);
  for (const char* name : {"element", "column"})
    for (const Loop loop : s.loops(name)) {
      const int64_t vector = 64 / sum_bytes, lanes = std::min(vector, ir::as_int(s.get(loop).extent).value_or(vector));
      if (!gathers && lanes > 1) s.vectorize(loop, static_cast<int>(lanes));
    }
  // The partials live in registers: a constant place each, or a lane.
  for (const char* name : {"lane", "half8", "half4", "half2"})
    for (const Loop loop : s.loops(name)) gathers ? s.unroll(loop) : s.vectorize(loop);
  for (const Loop loop : s.loops("half1")) s.unroll(loop);
  if (gathers) return;
  for (const Loop loop : s.loops("step")) s.unroll(loop);
}

}  // namespace gradloom
