// The strategy "touched_rows" of GatherGrad: accumulates into few rows of dX, touching no other. The definition's nest,
// its positions by row in tables of the rows that are named alone; each of these is summed in registers, stored once.
#include "ir/rewrite.h"
#include "ir/schedule/schedule_gpu.h"
#include "ops/gather/gather_touched.h"
#include "ops/patterns/scatter.h"

namespace gradloom {
namespace {

using ir::Loop;

// Rows lend elements to the positions' numbers where these are few; more are faster sorted. Measured beside a sort by
// bytes: [1000000, 64], 10 positions 0.33 and 0.93 us, 1,000 positions 9.9 and 12.6, 10,000 positions 330 and 305.
constexpr int64_t most_lent = 4096;

void schedule_rows(ir::Schedule& s, const GatherColumns& loops, const GatherSizes& sizes, const ir::Target& target) {
  using By = ir::Schedule::NamedBy;
  Loop positions = loops.middle[0];
  for (size_t d = 1; d < loops.middle.size(); ++d) positions = s.fuse(positions, loops.middle[d]);
  const int64_t count = ir::as_int(s.get(positions).extent).value_or(ir::max_elements);
  const ir::Schedule::NamedGroups groups =
      s.group_named(positions, loops.sums, count <= most_lent ? By::lending : By::sorting);
  for (size_t q = loops.inner.size(); q-- > 0;) {
    s.reorder(loops.inner[q], groups.named);
    s.hoist_lets(loops.inner[q]);
  }
  if (target.gpu) return ir::schedule_gpu(s, target);
  if (!loops.inner.empty()) vectorize_row(s, loops.inner.back(), sizes.inner, loops.sums->dtype, target);
  if (!worth_sharing(sizes, target)) return;
  std::vector<Loop> shared{groups.named};
  Dims extents{sizes.count};
  if (!loops.outer.empty()) shared = {loops.outer[0], groups.named}, extents = {sizes.outer, sizes.count};
  share_one_of(s, shared, extents, target);
}

Fit fit(const Plan& plan, const ir::Target& target, bool) {
  const GatherSizes s(plan);
  if (s.roles.varying) return Fit::none;
  // Measured beside "grouped": [1000000, 64] f32 by 250,000 positions 0.77 of its time, [100000, 256] by 25,000 0.95.
  const Fit fit = touched_fit(plan, target, s.row_bytes() >= 256 ? 4 : 8);
  constexpr int64_t most_on_gpu = 32;  // positions are grouped by one thread
  return target.gpu && s.count > most_on_gpu && fit != Fit::none ? Fit::possible : fit;
}

ScheduleNest author(KernelFrame& frame, const ir::Target& target) {
  return [loops = author_gather_columns(GatherFrame(frame, gather_roles(frame.plan()))),
          sizes = GatherSizes(frame.plan()), &target](ir::Schedule& s) { schedule_rows(s, loops, sizes, target); };
}

}  // namespace

Strategy gather_touched_rows() { return {.name = "touched_rows", .fit = fit, .author = author}; }

}  // namespace gradloom
