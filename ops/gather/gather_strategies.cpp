#include "ops/gather/gather_strategies.h"

#include "ir/rewrite.h"
#include "ops/patterns/scatter.h"

namespace gradloom {

// In order of preference: adding in order in shared memory is faster than atomic adds to memory.
std::vector<Strategy> gather_strategies() {
  return {gather_touched(), gather_touched_rows(), gather_in_place(), gather_bins(),    gather_partition(),
          gather_atomic(),  gather_chunked(),      gather_sorted(),   gather_grouped(), gather_pipelined(),
          gather_row(),     gather_strip(),        gather_block(),    gather_direct()};
}

GatherSizes::GatherSizes(const Plan& plan) : roles(gather_roles(plan)) {
  const View& dx = plan.views[roles.empty ? 0 : 2];
  sum_bytes = size_of(accumulator_of(dx.dtype));
  if (roles.empty) return;
  extent = dx.dims[roles.axis()];
  const View& dy = plan.views[1];
  const Dims& spanned = roles.accumulate ? dy.dims : dx.dims;
  for (int d = 0; d < roles.outer; ++d) outer *= spanned[d];
  for (int d = 0; d < roles.inner; ++d) inner *= spanned[spanned.size() - 1 - d];
  for (int d = 0; d < roles.middle; ++d) count *= dy.dims[roles.outer + d];
  traffic = plan.bytes_read + plan.bytes_written;
  read_bytes = size_of(plan.views[0].dtype) + size_of(plan.views[1].dtype);
}

void stream_large(ir::Schedule& schedule, const GatherSizes& s, const ir::Target& target) {
  if (s.large(target)) schedule.streaming(schedule.kernel().buffers.back());
}

void stream_rows(ir::Schedule& schedule, const GatherSizes& s, const ir::Target& target) {
  if (whole_lines(s.inner, schedule.kernel().buffers.back()->dtype)) stream_large(schedule, s, target);
}

std::optional<ir::Loop> share_in_pieces(ir::Schedule& schedule, ir::Loop loop, const ir::Target& target) {
  const int64_t extent = ir::as_int(schedule.get(loop).extent).value_or(0);
  int64_t piece = extent / wanted_tasks(target);
  while (piece > 1 && extent % piece != 0) --piece;
  if (piece <= 1) return schedule.parallel(loop), std::nullopt;
  const ir::Schedule::Split cut = schedule.split(loop, piece);
  schedule.parallel(cut.outer);
  return cut.inner;
}

void carry_sums(ir::Schedule& schedule, ir::Loop loop) {
  ir::Buffer sums;
  ir::walk(schedule.get(loop).body, [&](const ir::Stmt& x) {
    if (const auto* alloc = x.as<ir::Alloc>(); alloc && !sums) sums = alloc->buffer;
  });
  schedule.attempt([&](ir::Schedule& trial) { trial.hoist_zeroed_buffer(loop, sums); });
}

// Filling dX and adding to it is faster where a pass over sums costs more than few updates, and for narrow rows, which
// cost more to sort than to find. Where sums stay in a cache, strips of them do better.
GatherBy gather_by(const GatherSizes& s, const ir::Target& target) {
  const int64_t row = s.row_bytes(), bytes = s.extent * row;
  const auto adding_if = [](bool pays) { return pays ? GatherBy::adding : GatherBy::caching; };
  if (s.one_row()) return adding_if(s.count <= s.extent / 4 && bytes <= target.l2_bytes);
  if (s.flat()) return adding_if(bytes <= ir::line_bytes || s.count <= s.extent / 64);
  if (s.roles.varying) return adding_if(s.count <= s.extent / 128);
  const bool cached = bytes <= target.l2_bytes && s.count * row > 64 * target.l2_bytes;  // sorted, dY is read at random
  if (!cached && sorting_pays(s.count, s.extent, row)) return GatherBy::sorting;
  return adding_if(s.count <= s.extent / 4 || bytes > 4 * target.l2_bytes || s.outer * bytes <= target.l2_bytes / 2);
}

}  // namespace gradloom
