// The strategy "grouped" of GatherGrad: the definition's nest, its positions sorted by row; then every row of dX is
// summed and written once, whatever the duplicates.
#include <algorithm>
#include <optional>

#include "ir/schedule/schedule_gpu.h"
#include "ops/gather/gather_strategies.h"
#include "ops/patterns/scatter.h"

namespace gradloom {
namespace {

// Prefetch distance in rows of dY: about 4 KiB beyond the next one, at most 17 rows.
int64_t rows_ahead(const ir::Buffer& dy) {
  const std::optional<int64_t> row = ir::as_int(dy->dims.back());
  return 1 + (row ? std::clamp<int64_t>(4096 / std::max<int64_t>(*row * size_of(dy->dtype), 1), 1, 16) : 1);
}

// Sorts positions by row; then, for each row, sums one element of it after the other.
ir::Schedule::Groups group_rows(ir::Schedule& schedule, const GatherColumns& loops, bool accumulate) {
  const ir::Schedule::Groups groups = schedule.group(loops.middle[0], loops.sums);
  schedule.join(loops.zero, groups.rows[0]);
  schedule.join(loops.zero, loops.store);
  schedule.stage(loops.zero, loops.sums, {ir::var(schedule.get(loops.zero).var)}, {1});
  for (size_t q = loops.inner.size(); q-- > 0;) {
    schedule.reorder(loops.inner[q], loops.zero);
    schedule.hoist_lets(loops.inner[q]);
  }
  if (accumulate) schedule.skip_empty(loops.zero, groups.group);
  return groups;
}

void schedule_cpu(ir::Schedule& schedule, const GatherColumns& loops, const ir::Schedule::Groups& groups,
                  const GatherSizes& s, const ir::Target& target) {
  vectorize_sums(schedule, groups.clear, 4, target);
  if (s.roles.inner == 1) {
    const ir::Buffer dy = schedule.kernel().buffers[1];
    schedule.prefetch(groups.group, dy, rows_ahead(dy), 1, ir::var(groups.all));
    const int lanes = target.lanes(s.sum_bytes);
    int64_t width = 64;  // one vector value of many registers: each position of the group is read once for all of them
    while (width > lanes && width > s.inner) width /= 2;
    schedule.vectorize(loops.inner[0], static_cast<int>(width));
  }
  if (s.traffic >= parallel_bytes) schedule.parallel(loops.zero);
  stream_rows(schedule, s, target);
}

Fit fit(const Plan& plan, const ir::Target& target, bool any_shape) {
  const GatherSizes s(plan);
  if (target.gpu) return any_shape && s.sortable() ? Fit::preferred : Fit::none;
  if (!s.columns() || s.roles.varying) return Fit::none;
  const bool large = s.extent * s.row_bytes() > target.l2_bytes;
  const DType dtype = plan.views[2].dtype;
  if (s.roles.accumulate) return preferred_if(s.row_bytes() >= 32 && large);
  if (accumulator_of(dtype) == dtype) return preferred_if(gather_by(s, target) == GatherBy::sorting);
  return preferred_if(s.row_bytes() >= 256 || (s.row_bytes() >= 64 && large));  // "in_place" cannot serve
}

ScheduleNest author(KernelFrame& frame, const ir::Target& target) {
  return [loops = author_gather_columns(GatherFrame(frame, gather_roles(frame.plan()))), &plan = frame.plan(),
          &target](ir::Schedule& s) {
    const GatherSizes sizes(plan);
    const ir::Schedule::Groups groups = group_rows(s, loops, sizes.roles.accumulate);
    if (target.gpu) return ir::schedule_gpu(s, target);
    schedule_cpu(s, loops, groups, sizes, target);
  };
}

}  // namespace

Strategy gather_grouped() { return {.name = "grouped", .fit = fit, .author = author}; }

}  // namespace gradloom
