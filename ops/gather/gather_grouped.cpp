// The strategy "grouped" of GatherGrad: a stable counting sort of the indices, then every row of dX is summed and
// written once, whatever the duplicates.
#include <algorithm>
#include <limits>
#include <optional>

#include "ops/gather/gather_strategies.h"

namespace gradloom {
namespace {

using ir::Buffer;
using ir::Expr;
using ir::Loop;
using Index = GatherFrame::Index;

DType counter_type(const Expr& limit) {
  const auto known = ir::as_int(limit);
  return known && *known < std::numeric_limits<int32_t>::max() ? DType::i32 : DType::i64;
}

// Prefetch distance in rows of dY: about 4 KiB, at most 16 rows.
int64_t rows_ahead(const GatherFrame& f) {
  const std::optional<int64_t> row = ir::as_int(f.dy->dims.back());
  return row ? std::clamp<int64_t>(4096 / std::max<int64_t>(*row * size_of(f.dy->dtype), 1), 1, 16) : 1;
}

struct GroupedLoops {
  Loop zero_first, zero_order, rows;
  std::vector<Loop> inner;
};

// After the sort, the positions whose index is row r are order[first[r]] ... order[first[r + 1] - 1], in index order.
GroupedLoops write_nest(KernelFrame& frame) {
  GroupedLoops loops;
  const GatherFrame f(frame, gather_roles(frame.plan()));
  ir::KernelBuilder& b = f.b;
  const Expr rows = f.axis_extent(), count = f.dy->dims[f.roles.outer];
  const DType counter = counter_type(count);
  const auto number = [&](Expr e) { return ir::cast(counter, std::move(e)); };
  const auto position = [](Expr e) { return ir::cast(DType::i64, std::move(e)); };

  // The histogram is offset by two slots: its prefix sum puts the start of row j in first[j + 1], and placing advances
  // it to the start of row j + 1.
  const Buffer first = b.alloc("first", counter, {rows + 2}, {.min = 0, .max = count});
  const Buffer order = b.alloc("order", counter, {count}, {.min = 0, .max = count - 1});
  loops.zero_first = b.loop("z", 0, rows + 2, [&](Expr i) { b.store(first, {i}, number(0)); });
  loops.zero_order = b.loop("y", 0, count, [&](Expr i) { b.store(order, {i}, number(0)); });
  b.loop("h", 0, count,
         [&](Expr k) { f.checked_index({k}, [&](Expr j) { b.accumulate(first, {j + 2}, number(1)); }); });
  const Buffer running = b.alloc("running", counter, {1}, {}, ir::Space::registers);
  b.store(running, {0}, number(0));
  b.loop("o", 0, rows, [&](Expr i) {
    b.accumulate(running, {0}, ir::load(first, {i + 2}));
    b.store(first, {i + 2}, ir::load(running, {0}));
  });
  b.loop("k", 0, count, [&](Expr k) {
    f.checked_index({k}, [&](Expr j) {
      const Expr slot = b.let("slot", ir::load(first, {j + 1}));
      b.store(order, {position(slot)}, number(k));
      b.store(first, {j + 1}, slot + number(1));
    });
  });

  b.loops("p", f.outer_dims(f.dx), [&](const Index& p) {
    loops.rows = b.loop("r", 0, rows, [&](Expr r) {
      const Expr begin = b.let("begin", position(ir::load(first, {r}))),
                 end = b.let("end", position(ir::load(first, {r + 1})));
      if (f.roles.inner == 1) {
        // Prefetches a later row in sorted order while this one is summed.
        const int64_t step = ir::line_bytes / size_of(f.dy->dtype);
        b.if_then(begin < end, [&] {
          const Expr next = b.let("next", position(ir::load(order, {ir::min(end + rows_ahead(f), count - 1)})));
          b.loop("f", 0, ir::floor_div(f.dx->dims.back() + (step - 1), step),
                 [&](Expr line) { b.prefetch(f.dy, f.joined(p, {next}, {line * step}), 1); });
        });
      }
      b.guarded(f.roles.accumulate ? begin < end : Expr(), [&] {
        loops.inner = b.loops("q", f.inner_dims(f.dx), [&](const Index& q) {
          const Buffer acc = b.alloc("acc", f.sum, {1}, {}, ir::Space::registers);
          b.store(acc, {0}, ir::zero({f.sum, 1}));
          b.loop("g", begin, end - begin, [&](Expr g) {
            b.accumulate(acc, {0}, ir::cast(f.sum, ir::load(f.dy, f.joined(p, {position(ir::load(order, {g}))}, q))));
          });
          f.store_total(f.joined(p, {r}, q), ir::load(acc, {0}));
        });
      });
    });
  });
  return loops;
}

void schedule_cpu(ir::Schedule& schedule, const GroupedLoops& loops, const GatherSizes& s, const ir::Target& target) {
  vectorize_sums(schedule, loops.zero_first, 4, target);
  vectorize_sums(schedule, loops.zero_order, 4, target);
  if (s.roles.inner == 1) {
    const int lanes = target.lanes(s.sum_bytes);
    int64_t width = 64;  // one vector value of many registers: each position of the group is read once for all of them
    while (width > lanes && width > s.inner) width /= 2;
    schedule.vectorize(loops.inner[0], static_cast<int>(width));
  }
  if (s.traffic >= parallel_bytes) schedule.parallel(loops.rows);
  stream_large(schedule, s, target);
}

Fit fit(const Plan& plan, const ir::Target& target, bool any_shape) {
  const GatherSizes s(plan);
  if (target.gpu) return any_shape && s.sortable() ? Fit::preferred : Fit::none;
  if (!s.columns() || s.roles.varying) return Fit::none;
  return preferred_if(s.inner * s.sum_bytes >= 32 && s.extent * s.sum_bytes * s.inner > target.l2_bytes);
}

ScheduleNest author(KernelFrame& frame, const ir::Target& target) {
  const auto loops = write_nest(frame);
  if (target.gpu) return {};
  return [loops, &plan = frame.plan(), &target](ir::Schedule& s) { schedule_cpu(s, loops, GatherSizes(plan), target); };
}

}  // namespace

Strategy gather_grouped() { return {.name = "grouped", .fit = fit, .author = author}; }

}  // namespace gradloom
