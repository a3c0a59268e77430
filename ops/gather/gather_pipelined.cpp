// The strategy "pipelined" of GatherElementsGrad with an inner dim, shapes known: the definition's nest in narrow
// strips, each written while the next ones are summed. Summing is bound by cache latency and writing by memory
// bandwidth, so one hides the other. A row of a strip is one or two cache lines, and lines of the same column share few
// paths to memory: so the rows of `depth` neighbouring strips are written interleaved, the first part of the last one,
// the second part of the one before it, and so on.
#include <algorithm>
#include <limits>

#include "ir/rewrite.h"
#include "ops/gather/gather_strategies.h"
#include "ops/patterns/integer_math.h"

namespace gradloom {
namespace {

using ir::Loop;

struct GatherPipeline {
  int64_t columns = 0;    // of a strip
  int64_t depth = 0;      // strips that are summed and not yet written
  int64_t sum_bytes = 0;  // per task: of those strips and the one being summed
};

constexpr int64_t lines_at_a_time = 4;
constexpr int64_t shortest_strip = 8 << 10;  // bytes of sums; below, switching strips costs more than the overlap hides

// Prefetch distance in rows: shorter where rows conflict in the same L1 cache sets.
constexpr int64_t most_ahead = 16;
int64_t rows_ahead(const ir::Buffer& b) {
  return *ir::as_int(b->dims.back()) * size_of(b->dtype) % 4096 == 0 ? most_ahead / 2 : most_ahead;
}

// The loops in a strip: over rows, and over the strip's columns in each.
struct Strip {
  Loop zero, zero_columns, sum, sum_columns, store, store_columns;
};

// Those of for strip { zeros, sums, stores }, or without sums: the columns that no index covers.
Strip strip_of(const ir::Schedule& s, Loop strips) {
  std::vector<Loop> l;
  for (const ir::For* f : ir::loops_below(s.get(strips).body)) l.push_back(f->var.id);
  const size_t last = l.size() - 2;
  return last == 2 ? Strip{l[0], l[1], 0, 0, l[2], l[3]} : Strip{l[0], l[1], l[2], l[3], l[last], l[last + 1]};
}

// for strip { for column { zeros, sums, stores } } -> for strip { for row { for column { zeros } } ... }
void take_rows(ir::Schedule& s, Loop strips) {
  for (const Loop part : s.distribute(s.get(strips).body.as<ir::For>()->var.id)) {
    const std::vector<const ir::For*> below = ir::loops_below(s.get(part).body);
    const Loop rows = below[0]->var.id;
    s.reorder(part, rows);
    if (s.get(part).body.as<ir::If>()) s.hoist_lets(part), s.hoist_lets(rows);
  }
}

void overlap_strips(ir::Schedule& s, Loop strips, const GatherPipeline& cut, const GatherSizes& sizes) {
  const Strip in = strip_of(s, strips);
  const ir::Buffer sums = s.get(strips).body.as<ir::Alloc>()->buffer, dx = s.kernel().buffers[2];
  s.hoist_zeroed_buffer(strips, sums);
  for (const int input : {1, 0}) {
    const ir::Buffer from = s.kernel().buffers[static_cast<size_t>(input)];
    s.prefetch_across(strips, in.sum, from, std::min(rows_ahead(from), sizes.count), 1);
  }
  if (sizes.roles.accumulate) s.prefetch(in.store, dx, rows_ahead(dx), 1);
  constexpr int64_t lanes = 8;
  s.vectorize(in.sum_columns, lanes, static_cast<int>(cut.columns / lanes));
  s.vectorize(in.store_columns);
  s.overlap(strips, in.sum, in.store, cut.depth);
  s.vectorize(in.zero_columns);
}

void schedule_pipelined(ir::Schedule& s, const GatherColumns& loops, const GatherPipeline& cut,
                        const GatherSizes& sizes, const ir::Target& target) {
  const bool shared = worth_threads(sizes.traffic, target);
  Loop columns = loops.inner[0];
  if (sizes.roles.inner_shorter(0) && !sizes.roles.accumulate) {
    const auto [covered, others] = s.partition(columns, s.kernel().buffers[1]->dims.back());
    const Loop rest = s.split(others, cut.columns).outer;
    take_rows(s, rest);
    const Strip in = strip_of(s, rest);
    s.vectorize(in.zero_columns), s.vectorize(in.store_columns);
    Loop outermost = rest;
    if (!loops.outer.empty()) outermost = s.distribute(loops.outer[0]).back();
    if (shared) s.parallel(outermost);
    columns = covered;
  }
  Loop strips = s.split(columns, cut.columns).outer;
  take_rows(s, strips);
  if (!loops.outer.empty()) strips = s.fuse(loops.outer[0], strips);
  // A task's prologue and epilogue (its first and last strips) overlap with nothing: few tasks.
  if (shared) {
    const int64_t all = *ir::as_int(s.get(strips).extent), most = ceil_div(all, wanted_tasks(target)),
                  least = std::max<int64_t>(all / wanted_tasks(target), 1);
    const ir::Schedule::Split tasks = s.split(strips, all % least < all % most ? least : most);  // few strips are left
    s.parallel(tasks.outer);
    if (tasks.tail != 0) overlap_strips(s, tasks.tail, cut, sizes);
    strips = tasks.inner;
  }
  overlap_strips(s, strips, cut, sizes);
  stream_large(s, sizes, target);
}

// Absent where the nest does not apply: strips must be whole cache lines, and indices must cover all of a strip or none
// of it.
std::optional<GatherPipeline> gather_pipeline(const Plan& plan) {
  const GatherRoles roles = gather_roles(plan);
  if (roles.empty || !roles.varying || roles.outer > 1 || roles.middle != 1 || roles.inner != 1) return {};
  const View &dy = plan.views[1], &dx = plan.views[2];
  const int64_t line = ir::line_bytes / size_of(dx.dtype), inner = dx.dims.back(), extent = dx.dims[roles.axis()];
  if (inner % line != 0 || std::max(extent, dy.dims[roles.outer]) > std::numeric_limits<int32_t>::max())
    return {};  // the step overlap multiplies these
  const int64_t sum_bytes = size_of(accumulator_of(dx.dtype)), two_lines = 2 * ir::line_bytes / sum_bytes;
  GatherPipeline cut{.columns = inner % two_lines == 0 ? two_lines : line};
  if (dy.dims.back() % cut.columns != 0) return {};
  cut.depth = lines_at_a_time * ir::line_bytes / (cut.columns * sum_bytes);
  cut.sum_bytes = (cut.depth + 1) * extent * cut.columns * sum_bytes;
  return cut;
}

// Whether a large call is faster pipelined: it writes at least as much as it reads, else reading narrow pieces costs
// more than the overlap hides; and the sums of all strips in flight fit in cache.
bool pays(const Plan& plan, const GatherPipeline& cut, const ir::Target& target) {
  const GatherRoles roles = gather_roles(plan);
  const View &indices = plan.views[0], &dy = plan.views[1], &dx = plan.views[2];
  const int64_t size = size_of(dx.dtype), extent = dx.dims[roles.axis()];
  const int64_t written = extent * size, read = dy.dims[roles.outer] * (size_of(indices.dtype) + size);
  // The first rows of an accumulated dX are not prefetched.
  if (roles.accumulate && extent < 8 * most_ahead) return false;
  return written >= read && cut.sum_bytes >= shortest_strip * (cut.depth + 1) &&
         cut.sum_bytes <= target.l2_bytes / 4 * 3;
}

Fit fit(const Plan& plan, const ir::Target& target, bool any_shape) {
  const std::optional<GatherPipeline> cut = gather_pipeline(plan);
  if (target.gpu || any_shape || !cut) return Fit::none;
  return preferred_if(GatherSizes(plan).large(target) && pays(plan, *cut, target));
}

ScheduleNest author(KernelFrame& frame, const ir::Target& target) {
  return [loops = author_gather_columns(GatherFrame(frame, gather_roles(frame.plan()))),
          cut = *gather_pipeline(frame.plan()), sizes = GatherSizes(frame.plan()),
          &target](ir::Schedule& s) { schedule_pipelined(s, loops, cut, sizes, target); };
}

}  // namespace

Strategy gather_pipelined() { return {.name = "pipelined", .fit = fit, .author = author}; }

}  // namespace gradloom
