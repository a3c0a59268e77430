// The strategies "row" and "strip" on a CPU: the definition's nest, scheduled so that the sums of a row, or of a strip
// of neighbouring columns, stay in cache.
#include "ir/rewrite.h"
#include "ops/gather/gather_strategies.h"

namespace gradloom {
namespace {

using ir::Loop;

// Prefetch distance in a strip: rows farther ahead would evict one another from the L1 cache.
constexpr int64_t rows_ahead = 4;

void schedule_row(ir::Schedule& schedule, const GatherColumns& loops, const GatherSizes& s, const ir::Target& target) {
  if (!loops.outer.empty()) {
    std::optional<Loop> rows = loops.outer.back();
    if (s.traffic >= parallel_bytes) {
      if (loops.outer.size() > 1)
        schedule.parallel(loops.outer.front());
      else
        rows = share_in_pieces(schedule, loops.outer.front(), target);
    }
    if (rows) carry_sums(schedule, *rows);
  }
  vectorize_sums(schedule, loops.zero, s.sum_bytes, target);
  vectorize_sums(schedule, loops.store, s.sum_bytes, target);
  constexpr int lanes = 8;
  const Loop vectors = schedule.vectorize(loops.middle[0], lanes);
  const int64_t ahead = std::max<int64_t>(target.l1_bytes / 2 / (lanes * s.read_bytes), 1);  // half of the L1 cache
  if (s.large(target))
    for (int input : {0, 1}) schedule.prefetch(vectors, schedule.kernel().buffers[input], ahead, 1);
  stream_large(schedule, s, target);
}

// Rows are read in contiguous pieces as wide as the strip, and long pieces get more memory bandwidth: the widest strip
// that has half of its sums in the L2 cache and leaves a strip for every thread.
int64_t strip_width(const GatherSizes& s, const ir::Target& target) {
  const int64_t line = ir::line_bytes / s.sum_bytes, most = 64,
                strips = s.outer >= wanted_tasks(target) ? 1 : target.threads;
  int64_t width = most;
  while (width > line && (s.extent * width * s.sum_bytes > 2 * target.l2_bytes || s.inner < strips * width)) width /= 2;
  return width;
}

bool scatters(const ir::Stmt& body) {
  return ir::any_of(body, [](const ir::Stmt& x) { return x.as<ir::Accumulate>() != nullptr; });
}

// Distributes the column loop over the statements of its body and vectorises each across the columns, inside the loop
// over rows. `strips`: the enclosing serial loop, if any.
void schedule_columns(ir::Schedule& schedule, Loop column, std::optional<Loop> strips, const GatherSizes& s,
                      const ir::Target& target) {
  const int index_lanes = std::min(8, 2 * target.lanes(s.sum_bytes)),
            lanes = std::max(index_lanes, target.lanes(s.sum_bytes));
  std::vector<std::pair<Loop, bool>> parts;  // and whether it scatters
  for (Loop part : schedule.distribute(column)) {
    parts.push_back({part, false});
    if (const ir::For* inside = schedule.get(part).body.as<ir::For>()) {
      const Loop rows = inside->var.id;
      parts.back().second = scatters(inside->body);
      schedule.reorder(part, rows);
      if (parts.back().second && s.large(target))
        for (int input : {0, 1})
          if (input || s.roles.varying) schedule.prefetch(rows, schedule.kernel().buffers[input], rows_ahead, 1);
    }
  }
  if (strips) carry_sums(schedule, *strips);
  for (const auto& [part, scattering] : parts)
    schedule.vectorize(part, scattering ? index_lanes : lanes, scattering ? 1 : 4);
}

void schedule_strip(ir::Schedule& schedule, const GatherColumns& loops, const GatherSizes& s,
                    const ir::Target& target) {
  // Columns outside the corner that indices cover get loops of their own.
  const ir::Buffer dy = schedule.kernel().buffers[1];
  Loop columns = loops.inner[0];
  if (s.roles.inner_shorter(0) && !s.roles.accumulate) columns = schedule.partition(columns, dy->dims.back()).first;
  const int64_t extent = ir::as_int(schedule.get(columns).extent).value_or(s.inner);
  const auto [strips, column, tail] = schedule.split(columns, std::min(strip_width(s, target), extent));
  std::optional<Loop> serial = strips;
  if (s.traffic >= parallel_bytes) {
    if (s.outer >= wanted_tasks(target))
      schedule.parallel(loops.outer[0]);
    else
      serial = share_in_pieces(schedule, strips, target);
  }
  schedule_columns(schedule, column, serial, s, target);
  if (tail != 0 && ir::as_int(schedule.get(tail).extent)) schedule_columns(schedule, tail, {}, s, target);
  stream_large(schedule, s, target);
}

using ScheduleColumns = void (*)(ir::Schedule&, const GatherColumns&, const GatherSizes&, const ir::Target&);
template <ScheduleColumns schedule>
ScheduleNest author(KernelFrame& frame, const ir::Target& target) {
  return [loops = author_gather_columns(GatherFrame(frame, gather_roles(frame.plan()))),
          sizes = GatherSizes(frame.plan()), &target](ir::Schedule& s) { schedule(s, loops, sizes, target); };
}

}  // namespace

Strategy gather_row() {
  return {.name = "row",
          .fit = [](const Plan& plan, const ir::Target& target,
                    bool) { return !target.gpu && GatherSizes(plan).flat() ? Fit::preferred : Fit::none; },
          .author = author<schedule_row>};
}

Strategy gather_strip() {
  return {.name = "strip",
          .fit =
              [](const Plan& plan, const ir::Target& target, bool) {
                const GatherSizes s(plan);
                return !target.gpu && s.columns() ? preferred_if(s.inner >= 8) : Fit::none;
              },
          .author = author<schedule_strip>};
}

}  // namespace gradloom
