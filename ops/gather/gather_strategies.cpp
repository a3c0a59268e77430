// Which strategies serve a call of the gather gradients, the one to use first, and their schedules.
//
//   direct     the definition: a column of dX at a time
//   row        no inner dim: one row of sums in cache, scattered to by scalar adds, streamed out
//   strip      an inner dim: a strip of neighbouring columns in cache, vectors of indices and values a row
//   pipelined  an inner dim of whole cache lines, a few of whose columns fit in cache: narrow strips, written while the
//   next ones are summed grouped    GatherGrad with an inner dim: positions sorted by row, each row summed in registers
//   and written once chunked    as grouped, but long groups are summed in chunks, in a fixed order (run_to_run) atomic
//   every element is added to memory where it goes (relaxed) partition  flat, larger than the cache: sorted into bins
//   of neighbouring destinations first
#include <optional>

#include "ir/rewrite.h"
#include "ir/schedule/schedule_gpu.h"
#include "ops/gather/gather_bins.h"
#include "ops/gather/gather_block.h"
#include "ops/gather/gather_common.h"
#include "ops/gather/gather_pipelined.h"
#include "ops/gather/gather_sorted.h"
#include "ops/patterns/schedule_common.h"

namespace gradloom {
namespace {

using Loop = ir::Schedule::Loop;

constexpr int64_t shortest_partition = 1 << 16;  // indices of a flat call on a GPU
constexpr int64_t rows_ahead = 8;                // of a strip: more would meet in the same sets of the L1 cache

struct Sizes {
  explicit Sizes(const Plan& plan) : roles(gather_roles(plan)) {
    const View& dx = plan.views[roles.empty ? 0 : 2];
    sum_bytes = size_of(accumulator_of(dx.dtype));
    if (roles.empty) return;
    extent = dx.dims[roles.axis()];
    for (int d = 0; d < dx.dims.size(); ++d)
      (d < roles.outer ? outer : d > roles.outer ? inner : extent) *= d == roles.axis() ? 1 : dx.dims[d];
    traffic = plan.bytes_read + plan.bytes_written;
    read_bytes = size_of(plan.views[0].dtype) + size_of(plan.views[1].dtype);
  }
  GatherRoles roles;
  int64_t outer = 1, extent = 1, inner = 1, traffic = 0;
  int sum_bytes = 4, read_bytes = 12;  // of an element: its sum; its index and dY's element
};

// Rows of memory are read in pieces as wide as the strip, and memory is fast at long pieces: as wide as leaves half of
// the strip of sums in the L2 cache, and a strip for every thread.
int64_t strip_width(const Sizes& s, const ir::Target& target) {
  const int64_t line = ir::line_bytes / s.sum_bytes, most = 64,
                strips = s.outer >= wanted_tasks(target) ? 1 : target.threads;
  int64_t width = most;
  while (width > line && (s.extent * width * s.sum_bytes > 2 * target.l2_bytes || s.inner < strips * width)) width /= 2;
  return width;
}

// Vectors over whole registers, a few at a time, with a masked rest.
Loop vectorize(ir::Schedule& s, Loop loop, int element_bytes, const ir::Target& target, int copies = 4) {
  return s.vectorize(loop, target.lanes(element_bytes), copies);
}

// A few iterations side by side; the loop over whole groups of them is returned, 0 where there is none.
Loop copies(ir::Schedule& s, Loop loop, int64_t factor) {
  const ir::Schedule::Split split = s.split(loop, factor);
  if (split.outer) s.unroll(split.inner);
  return split.outer;
}

bool large(const Sizes& s, const ir::Target& target) {
  return target.streaming_stores && s.traffic > 4 * target.l2_bytes;
}

void stream(ir::Schedule& schedule, const Sizes& s, const ir::Target& target) {
  if (large(s, target)) schedule.streaming(schedule.kernel().buffers.back());
}

// A loop shared out to threads in few pieces, so that an iteration finds what the one before it left in the cache: the
// loop of a piece, or none.
std::optional<Loop> pieces(ir::Schedule& schedule, Loop loop, const ir::Target& target) {
  const int64_t extent = ir::as_int(schedule.get(loop).extent).value_or(0);
  int64_t piece = extent / wanted_tasks(target);
  while (piece > 1 && extent % piece != 0) --piece;
  if (piece <= 1) return schedule.parallel(loop), std::nullopt;
  const ir::Schedule::Split cut = schedule.split(loop, piece);
  schedule.parallel(cut.outer);
  return cut.inner;
}

// The sums that each iteration allocates are zeroed once, and then where they are read.
void carry_sums(ir::Schedule& schedule, Loop loop) {
  ir::Buffer sums;
  ir::walk(schedule.get(loop).body, [&](const ir::Stmt& x) {
    if (const auto* alloc = x.as<ir::Alloc>(); alloc && !sums) sums = alloc->buffer;
  });
  schedule.attempt([&](ir::Schedule& trial) { trial.carry_zeros(loop, sums); });
}

void schedule_row(ir::Schedule& schedule, const Sizes& s, const ir::Target& target) {
  if (s.roles.outer > 0) {
    const Loop first = schedule.loop("p0"), last = schedule.loop("p" + std::to_string(s.roles.outer - 1));
    std::optional<Loop> rows = last;
    if (s.traffic >= parallel_bytes) {
      if (s.roles.outer > 1)
        schedule.parallel(first);
      else
        rows = pieces(schedule, first, target);
    }
    if (rows) carry_sums(schedule, *rows);
  }
  for (Loop z : schedule.loops("z")) vectorize(schedule, z, s.sum_bytes, target);
  for (Loop i : schedule.loops("i")) vectorize(schedule, i, s.sum_bytes, target);
  for (Loop k : schedule.loops("k0")) {
    constexpr int lanes = 8;
    const Loop vectors = schedule.vectorize(k, lanes);
    const int64_t ahead = std::max<int64_t>(target.l1_bytes / 2 / (lanes * s.read_bytes), 1);  // half of the L1 cache
    if (large(s, target))
      for (int input : {0, 1}) schedule.prefetch(vectors, schedule.kernel().buffers[input], ahead, 1);
  }
  stream(schedule, s, target);
}

// A strip of columns: each statement of the column's body for all of them, a vector of columns a row. `strips`: the
// serial loop around, if there is one.
void schedule_columns(ir::Schedule& schedule, Loop column, std::optional<Loop> strips, const Sizes& s,
                      const ir::Target& target) {
  const int index_lanes = std::min(8, 2 * target.lanes(s.sum_bytes)),
            lanes = std::max(index_lanes, target.lanes(s.sum_bytes));
  std::vector<std::pair<Loop, bool>> parts;  // and whether it scatters
  for (Loop part : schedule.distribute(column)) {
    parts.push_back({part, false});
    if (const ir::For* inside = schedule.get(part).body.as<ir::For>()) {
      const Loop rows = inside->var.id;
      const bool scatters = inside->var.name == "k0";
      schedule.reorder(part, rows);
      parts.back().second = scatters;
      if (scatters && large(s, target))
        for (int input : {0, 1})
          if (input || s.roles.varying) schedule.prefetch(rows, schedule.kernel().buffers[input], rows_ahead, 1);
    }
  }
  if (strips) carry_sums(schedule, *strips);
  for (const auto& [part, scatters] : parts) schedule.vectorize(part, scatters ? index_lanes : lanes, scatters ? 1 : 4);
}

void schedule_strip(ir::Schedule& schedule, const Sizes& s, const ir::Target& target) {
  // What lies outside the corner that indices cover gets loops of its own.
  const ir::Buffer dy = schedule.kernel().buffers[1];
  Loop columns = schedule.loop("q0");
  if (s.roles.inner_shorter(0)) columns = schedule.partition(columns, dy->dims.back()).first;
  const int64_t extent = ir::as_int(schedule.get(columns).extent).value_or(s.inner);
  const auto [strips, column, tail] = schedule.split(columns, std::min(strip_width(s, target), extent));
  std::optional<Loop> serial = strips;
  if (s.traffic >= parallel_bytes) {
    if (s.outer >= wanted_tasks(target))
      schedule.parallel(schedule.loop("p0"));
    else
      serial = pieces(schedule, strips, target);
  }
  schedule_columns(schedule, column, serial, s, target);
  if (tail != 0 && ir::as_int(schedule.get(tail).extent)) schedule_columns(schedule, tail, {}, s, target);
  stream(schedule, s, target);
}

void schedule_grouped(ir::Schedule& schedule, const Sizes& s, const ir::Target& target) {
  vectorize(schedule, schedule.loop("z"), 4, target);
  vectorize(schedule, schedule.loop("y"), 4, target);
  if (s.roles.inner == 1) {
    const int lanes = target.lanes(s.sum_bytes);
    int64_t width = 64;  // one vector value of many registers: each position of the group is read once for all of them
    while (width > lanes && width > s.inner) width /= 2;
    schedule.vectorize(schedule.loop("q0"), static_cast<int>(width));
  }
  if (s.traffic >= parallel_bytes) schedule.parallel(schedule.loop("r"));
  stream(schedule, s, target);
}

void schedule_partition(ir::Schedule& schedule, const Sizes& s, const ir::Target& target) {
  const ir::Buffer indices = schedule.kernel().buffers[0], dy = schedule.kernel().buffers[1],
                   dx = schedule.kernel().buffers[2];
  for (const char* name : {"z", "i"})
    for (Loop loop : schedule.loops(name)) vectorize(schedule, loop, s.sum_bytes, target);
  for (const char* name : {"zp", "w"})
    for (Loop loop : schedule.loops(name)) vectorize(schedule, loop, 8, target);
  constexpr int64_t indices_ahead = 512, values_ahead = 1024;
  const int lanes = target.lanes(8);
  for (Loop loop : schedule.loops("h"))
    if (const Loop vectors = schedule.vectorize(loop, lanes); vectors && large(s, target))
      schedule.prefetch(vectors, indices, indices_ahead / lanes, 1);
  for (Loop loop : schedule.loops("n")) copies(schedule, loop, 4);
  for (Loop loop : schedule.loops("k"))
    if (const Loop records = copies(schedule, loop, 4); records && large(s, target))
      schedule.prefetch(records, dy, values_ahead / 4, 1);
  if (large(s, target)) {
    const int64_t run = partition_lengths(accumulator_of(dx->dtype), dx->dims[0], dy->dims[0], target).run;
    for (const char* name : {"sorted", "sorted_values"}) {
      if (s.sum_bytes == 4 && name != std::string_view("sorted")) continue;
      schedule.streaming(schedule.buffer(name));
      // What the next bin gets from the same chunk.
      for (Loop loop : schedule.loops("r")) schedule.prefetch(loop, schedule.buffer(name), run, 1);
    }
  }
  schedule.parallel(schedule.loop("b"));
  if (target.threads > 1) schedule.parallel(schedule.loop("c"));
  stream(schedule, s, target);
}

// Where strategies serve. A flat call has no inner dim; one with columns has one inner dim. What is cut by known
// extents serves no call of any shape.

bool is_flat(const GatherRoles& r) { return !r.empty && r.inner == 0 && r.middle == 1; }
bool has_columns(const GatherRoles& r) { return !r.empty && r.inner == 1 && r.middle == 1; }
bool is_one_row(const GatherRoles& r) { return is_flat(r) && r.outer == 0; }
bool sortable(const GatherRoles& r) { return (has_columns(r) && !r.varying) || is_one_row(r); }

Fit preferred_if(bool good) { return good ? Fit::preferred : Fit::possible; }

// Bins pass the indices once, which is faster than atomic adds; a few indices are sorted as fast.
bool bins_pay(const Plan& plan, const ir::Target& target) {
  return is_one_row(gather_roles(plan)) && gather_bins_serve(plan, target) &&
         plan.views[1].dims[0] >= shortest_partition;
}

Fit fit_bins(const Plan& plan, const ir::Target& target, bool any_shape) {
  const GatherRoles r = gather_roles(plan);
  if (!target.gpu || any_shape || !is_one_row(r) || !gather_bins_serve(plan, target)) return Fit::none;
  return preferred_if(bins_pay(plan, target));
}

Fit fit_partition(const Plan& plan, const ir::Target& target, bool any_shape) {
  const Sizes s(plan);
  if (!is_one_row(s.roles)) return Fit::none;
  if (!target.gpu) return preferred_if(s.extent * s.sum_bytes > target.l2_bytes);
  if (!any_shape && gather_bins_serve(plan, target)) return Fit::none;
  return preferred_if(any_shape && bins_pay(plan, target));
}

// Where sums fit in shared memory, adding in order there is faster than atomic adds to memory.
Fit fit_atomic(const Plan& plan, const ir::Target& target, bool) {
  const GatherRoles r = gather_roles(plan);
  if (!target.gpu || r.empty || !has_atomic_adds(plan.views[2].dtype)) return Fit::none;
  return preferred_if(sortable(r));
}

Fit fit_sorted(const Plan& plan, const ir::Target& target, bool any_shape) {
  return target.gpu && !any_shape && sortable(gather_roles(plan)) ? Fit::preferred : Fit::none;
}

Fit fit_grouped(const Plan& plan, const ir::Target& target, bool any_shape) {
  const Sizes s(plan);
  if (target.gpu) return any_shape && sortable(s.roles) ? Fit::preferred : Fit::none;
  if (!has_columns(s.roles) || s.roles.varying) return Fit::none;
  return preferred_if(s.inner * s.sum_bytes >= 32 && s.extent * s.sum_bytes * s.inner > target.l2_bytes);
}

Fit fit_pipelined(const Plan& plan, const ir::Target& target, bool any_shape) {
  const std::optional<GatherPipeline> cut = gather_pipeline(plan);
  if (target.gpu || any_shape || !cut) return Fit::none;
  return preferred_if(large(Sizes(plan), target) && pipelining_pays(plan, *cut, target));
}

Fit fit_row(const Plan& plan, const ir::Target& target, bool) {
  return !target.gpu && is_flat(gather_roles(plan)) ? Fit::preferred : Fit::none;
}

Fit fit_strip(const Plan& plan, const ir::Target& target, bool) {
  const Sizes s(plan);
  return !target.gpu && has_columns(s.roles) ? preferred_if(s.inner >= 8) : Fit::none;
}

// Sums in shared memory, where they fit.
Fit fit_block(const Plan& plan, const ir::Target& target, bool) {
  const GatherRoles r = gather_roles(plan);
  if (!target.gpu || !((is_flat(r) && r.outer > 0) || has_columns(r))) return Fit::none;
  return preferred_if(gather_block(plan, target).columns > 0);
}

Fit fit_direct(const Plan&, const ir::Target&, bool) { return Fit::possible; }

}  // namespace

std::vector<Strategy> gather_strategies() {
  const auto scheduled = [](auto&& schedule) {
    return [schedule](const Plan& plan, const ir::Target& target) -> ScheduleNest {
      return [schedule, &plan, &target](ir::Schedule& s) {
        target.gpu ? ir::schedule_gpu(s, target) : schedule(s, Sizes(plan), target);
      };
    };
  };
  return {
      {"bins", Determinism::sequential, fit_bins,
       [](KernelFrame& frame, const ir::Target& target) -> ScheduleNest {
         author_gather_bins(frame, target);
         return [](ir::Schedule& s) { schedule_gather_bins(s); };
       }},
      {"partition", Determinism::sequential, fit_partition,
       [scheduled](KernelFrame& frame, const ir::Target& target) {
         author_gather_partition(frame, target);
         return scheduled(schedule_partition)(frame.plan(), target);
       }},
      {"atomic", Determinism::relaxed, fit_atomic,
       [](KernelFrame& frame, const ir::Target& target) -> ScheduleNest {
         author_gather_atomic(frame);
         return [&target](ir::Schedule& s) { ir::schedule_gpu(s, target); };
       }},
      {"chunked", Determinism::run_to_run, fit_sorted,
       [](KernelFrame& frame, const ir::Target& target) -> ScheduleNest {
         author_gather_sorted(frame, true);
         return [&plan = frame.plan(), &target](ir::Schedule& s) { schedule_gather_sorted(s, plan, target); };
       }},
      {"sorted", Determinism::sequential, fit_sorted,
       [](KernelFrame& frame, const ir::Target& target) -> ScheduleNest {
         author_gather_sorted(frame, false);
         return [&plan = frame.plan(), &target](ir::Schedule& s) { schedule_gather_sorted(s, plan, target); };
       }},
      {"grouped", Determinism::sequential, fit_grouped,
       [scheduled](KernelFrame& frame, const ir::Target& target) {
         author_gather_grouped(frame);
         return scheduled(schedule_grouped)(frame.plan(), target);
       }},
      {"pipelined", Determinism::sequential, fit_pipelined,
       [](KernelFrame& frame, const ir::Target& target) -> ScheduleNest {
         author_gather_pipelined(frame, target);
         return [&plan = frame.plan(), &target](ir::Schedule& s) {
           schedule_gather_pipelined(s);
           stream(s, Sizes(plan), target);
         };
       }},
      {"row", Determinism::sequential, fit_row,
       [scheduled](KernelFrame& frame, const ir::Target& target) {
         author_gather_direct(frame);
         return scheduled(schedule_row)(frame.plan(), target);
       }},
      {"strip", Determinism::sequential, fit_strip,
       [scheduled](KernelFrame& frame, const ir::Target& target) {
         author_gather_direct(frame);
         return scheduled(schedule_strip)(frame.plan(), target);
       }},
      {"block", Determinism::sequential, fit_block,
       [](KernelFrame& frame, const ir::Target& target) -> ScheduleNest {
         author_gather_block(frame, target);
         return [&target](ir::Schedule& s) { schedule_gather_block(s, target); };
       }},
      {"direct", Determinism::sequential, fit_direct,
       [](KernelFrame& frame, const ir::Target& target) -> ScheduleNest {
         author_gather_direct(frame);
         return [&plan = frame.plan(), &target](ir::Schedule& s) {
           target.gpu ? ir::schedule_gpu(s, target) : schedule_gather_direct(s, plan, target);
         };
       }},
  };
}

}  // namespace gradloom
