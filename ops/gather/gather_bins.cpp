// The strategy "bins" on a GPU, for a flat dX of a known shape: the definition's nest, whose positions thread blocks
// sort, a run of them at a time, by bin (a range of neighbouring destinations), stably; then one block per bin
// accumulates into sums in shared memory, run after run, in index order.
#include <algorithm>
#include <bit>
#include <limits>

#include "ops/gather/gather_strategies.h"
#include "ops/patterns/integer_math.h"

namespace gradloom {
namespace {

using ir::Loop;

constexpr int64_t longest_run = 4096, shortest_run = 64;  // indices that a block sorts
constexpr int64_t tile = 2048;                            // records of a bin that are staged in shared memory at a time
constexpr int64_t most_bins = 4096, most_runs = 4096;

int64_t bin_elements(const Plan& plan, const ir::Target& target) {
  return static_cast<int64_t>(
      std::bit_floor(static_cast<uint64_t>(target.shared_bytes / 3 / size_of(accumulator_of(plan.views[2].dtype)))));
}
int64_t run_length(int64_t count) {
  return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(std::clamp(count, shortest_run, longest_run))));
}

void schedule_bins(ir::Schedule& s, const GatherColumns& loops, const Plan& plan, const ir::Target& target) {
  const int64_t bin = bin_elements(plan, target);
  const ir::Schedule::SortedBins sorted =
      s.bin_sorted(loops.middle[0], loops.sums, bin, run_length(GatherSizes(plan).count));
  const ir::Schedule::Split zeros = s.split_guarded(loops.zero, bin), stores = s.split_guarded(loops.store, bin);
  s.join(zeros.outer, sorted.bins);
  s.join(zeros.outer, stores.outer);
  s.stage(zeros.outer, loops.sums, {ir::var(s.get(zeros.outer).var) * bin}, {bin});
  const ir::Schedule::PackedSegments packed = s.pack_segments(sorted.segments, tile);
  for (const Loop loop : {sorted.runs, zeros.outer}) s.bind(loop, ir::ForKind::grid);
  for (const Loop loop : sorted.run) s.bind(loop, ir::ForKind::thread);
  for (const Loop loop : {zeros.inner, packed.count, packed.fetch, stores.inner}) s.bind(loop, ir::ForKind::thread);
  const ir::Schedule::Split adder = s.split_parts(packed.add, 1);  // one warp adds
  const Loop lanes = s.split_guarded(adder.inner, ir::warp_lanes).inner;
  s.bind(adder.outer, ir::ForKind::warp);
  s.bind(lanes, ir::ForKind::lane);
}

Fit fit(const Plan& plan, const ir::Target& target, bool any_shape) {
  return target.gpu && !any_shape ? gather_bins_fit(plan, target) : Fit::none;
}

}  // namespace

// Bins read the indices once, which is faster than atomic adds; few indices are sorted as fast.
Fit gather_bins_fit(const Plan& plan, const ir::Target& target) {
  constexpr int64_t fewest = 1 << 16;  // indices, where bins are preferred
  if (!GatherSizes(plan).one_row() || plan.views[2].dims[0] > std::numeric_limits<int32_t>::max()) return Fit::none;
  const int64_t count = plan.views[1].dims[0];
  if (ceil_div(plan.views[2].dims[0], bin_elements(plan, target)) > most_bins ||
      ceil_div(count, run_length(count)) > most_runs)
    return Fit::none;
  return preferred_if(count >= fewest);
}

Strategy gather_bins() {
  return {.name = "bins", .fit = fit, .author = [](KernelFrame& frame, const ir::Target& target) -> ScheduleNest {
            return [loops = author_gather_columns(GatherFrame(frame, gather_roles(frame.plan()))), &plan = frame.plan(),
                    &target](ir::Schedule& s) { schedule_bins(s, loops, plan, target); };
          }};
}

}  // namespace gradloom
