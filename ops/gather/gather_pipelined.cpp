// The strategy "pipelined" of GatherElementsGrad with an inner dim, shapes known: software pipelining over narrow
// strips, each written while the next ones are summed. Summing is bound by cache latency and writing by memory
// bandwidth, so one hides the other. A row of a strip is one or two cache lines, and lines of the same column share
// few paths to memory: so the rows of `depth` neighbouring strips are written interleaved, the first part of the last
// one, the second part of the one before it, and so on.
#include <algorithm>
#include <limits>

#include "ir/index_math.h"
#include "ops/gather/gather_strategies.h"
#include "ops/patterns/integer_math.h"

namespace gradloom {
namespace {

using ir::Buffer;
using ir::Expr;
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
int64_t rows_ahead(const Buffer& b) {
  return *ir::as_int(b->dims.back()) * size_of(b->dtype) % 4096 == 0 ? most_ahead / 2 : most_ahead;
}

class Pipelined {
 public:
  Pipelined(KernelFrame& frame, const GatherPipeline& cut, int64_t tasks)
      : f_(frame, gather_roles(frame.plan())),
        b_(f_.b),
        cut_(cut),
        extent_(*ir::as_int(f_.axis_extent())),
        rows_(*ir::as_int(f_.dy->dims[f_.roles.outer])),
        inner_(*ir::as_int(f_.dx->dims.back()) / cut.columns),
        all_((f_.roles.outer ? *ir::as_int(f_.dx->dims[0]) : 1) * inner_),
        most_(ceil_div(all_, tasks)) {}

  // Each task has a range of neighbouring strips.
  void write() {
    const int64_t tasks = ceil_div(all_, most_);
    if (tasks == 1) return task(0);
    tasks_ = b_.loop("c", 0, tasks, [&](const Expr& c) { task(c * most_); });
  }

  void schedule(ir::Schedule& s) const {
    if (tasks_ != 0) s.parallel(tasks_);
    s.vectorize(zero_);
    for (const Loop loop : lines_) s.unroll(loop);
    for (const Loop loop : summed_) s.vectorize(loop, 8);
    for (const Loop loop : written_) s.vectorize(loop);
  }

 private:
  using Index = GatherFrame::Index;

  // A strip's start in dX, and the slot of its sums in the ring of depth + 1 buffers.
  struct Strip {
    Expr p, q, slot;
  };

  void task(const Expr& first) {
    first_ = first;
    strips_ = all_ % most_ == 0 ? Expr(most_) : b_.let("strips", ir::min(Expr(most_), all_ - first));
    acc_ = b_.alloc("acc", f_.sum, {cut_.depth + 1, extent_, cut_.columns});
    zero_ = b_.loops("z", acc_->dims, [&](const Index& at) { b_.store(acc_, at, ir::zero({f_.sum, 1})); }).back();
    b_.loop("t", 0, strips_ + cut_.depth, [&](const Expr& t) {
      const Strip now = strip(t), next = strip(t + 1);
      std::vector<Strip> before;
      for (int64_t d = 0; d < cut_.depth; ++d) before.push_back(strip(t - (d + 1)));
      const Expr summed = ir::both(t < strips_, f_.covered(index(now.p), {now.q}));
      // A strip's rows are written in `depth` parts: the first part while the next strip is summed, and so on.
      const int64_t part = ceil_div(extent_, cut_.depth), steps = std::min(rows_, part);
      b_.loop("n", 0, steps, [&](const Expr& n) {
        b_.if_then(summed, [&] { share("k", n, rows_, steps, [&](const Expr& k) { add_row(now, next, k); }); });
        share("i", n, part, steps, [&](const Expr& i) {
          for (int64_t d = 0; d < cut_.depth; ++d) {
            Expr written = (t > d) & (t <= strips_ + d);
            if ((d + 1) * part > extent_) written = written & (i < extent_ - d * part);
            b_.if_then(written, [&] { write_row(before[d], d * part + i); });
          }
        });
      });
    });
  }

  // Iterates over the n-th of `steps` shares of [0, extent), whose sizes differ by at most one.
  void share(const char* name, const Expr& n, int64_t extent, int64_t steps,
             const std::function<void(const Expr&)>& body) {
    if (extent % steps == 0) {
      b_.loop(name, n * (extent / steps), extent / steps, body);
      return;
    }
    const Expr begin = b_.let("begin", ir::floor_div(n * extent, steps));
    b_.loop(name, begin, ir::floor_div((n + 1) * extent, steps) - begin, body);
  }

  // Strip `number` of the task, clamped to its first and last.
  Strip strip(const Expr& number) {
    const Expr s = b_.let("strip", ir::max(ir::min(number, strips_ - 1), Expr(0))), at = first_ + s;
    // A strip as wide as dX: its number is p itself; without a division, tasks are proved independent.
    const bool whole = inner_ == 1 && f_.roles.outer > 0;
    return {.p = b_.let("p", whole ? at : ir::floor_div(at, inner_)),
            .q = b_.let("q", whole ? Expr(0) : (f_.roles.outer ? ir::floor_mod(at, inner_) : at) * cut_.columns),
            .slot = b_.let("slot", ir::floor_mod(s, cut_.depth + 1))};
  }

  Index index(const Expr& p) const { return f_.roles.outer ? Index{p} : Index{}; }
  Index index(const Expr& p, const Expr& row, const Expr& q) const { return f_.joined(index(p), {row}, {q}); }

  void add_row(const Strip& s, const Strip& next, const Expr& k) {
    prefetch_ahead(s, next, k);
    summed_.push_back(b_.loop("s", 0, cut_.columns, [&](const Expr& column) {
      const Index at = index(s.p, k, s.q + column);
      f_.checked_index(at, [&](const Expr& j) {
        b_.accumulate(acc_, {s.slot, j, column}, ir::cast(f_.sum, ir::load(f_.dy, at)));
      });
    }));
  }

  // Prefetches a later row; past this strip's last row, one of the next strip.
  void prefetch_ahead(const Strip& s, const Strip& next, const Expr& k) {
    for (const Buffer& from : {f_.indices, f_.dy}) {
      const int64_t ahead = std::min(rows_ahead(from), rows_);
      const Expr here = k < rows_ - ahead, row = b_.let("row", ir::select(here, k + ahead, k - (rows_ - ahead)));
      const Expr p = b_.let("p", ir::select(here, s.p, next.p)), q = b_.let("q", ir::select(here, s.q, next.q));
      prefetch(from, p, row, q);
    }
  }

  void prefetch(const Buffer& b, const Expr& p, const Expr& row, const Expr& q) {
    const int64_t line = ir::line_bytes / size_of(b->dtype);
    lines_.push_back(b_.loop("f", 0, ceil_div(cut_.columns, line),
                             [&](const Expr& i) { b_.prefetch(b, index(p, row, q + i * line), 1); }));
  }

  void write_row(const Strip& s, const Expr& i) {
    if (f_.roles.accumulate) prefetch(f_.dx, s.p, i + rows_ahead(f_.dx), s.q);
    written_.push_back(b_.loop("w", 0, cut_.columns, [&](const Expr& column) {
      f_.store_total(index(s.p, i, s.q + column), ir::load(acc_, {s.slot, i, column}));
      b_.store(acc_, {s.slot, i, column}, ir::zero({f_.sum, 1}));
    }));
  }

  const GatherFrame f_;
  ir::KernelBuilder& b_;
  const GatherPipeline cut_;
  // Extent of the axis; rows of dY; strips along the inner dim, in the call, and per task at most.
  const int64_t extent_, rows_, inner_, all_, most_;
  Expr first_, strips_;  // of a task
  Buffer acc_;
  Loop tasks_ = 0, zero_ = 0;  // tasks_: 0 where there is one task
  std::vector<Loop> lines_, summed_, written_;
};

// Absent where the nest does not apply: strips must be whole cache lines, and indices must cover all of a strip or none
// of it.
std::optional<GatherPipeline> gather_pipeline(const Plan& plan) {
  const GatherRoles roles = gather_roles(plan);
  if (roles.empty || !roles.varying || roles.outer > 1 || roles.middle != 1 || roles.inner != 1) return {};
  const View &dy = plan.views[1], &dx = plan.views[2];
  const int64_t line = ir::line_bytes / size_of(dx.dtype), inner = dx.dims.back(), extent = dx.dims[roles.axis()];
  if (inner % line != 0 || std::max(extent, dy.dims[roles.outer]) > std::numeric_limits<int32_t>::max())
    return {};  // the nest multiplies these
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
  const Plan& plan = frame.plan();
  // A task's prologue and epilogue (its first and last strips) overlap with nothing: few tasks.
  const bool shared = worth_threads(plan.bytes_read + plan.bytes_written, target);
  const auto nest = std::make_shared<Pipelined>(frame, *gather_pipeline(plan), shared ? wanted_tasks(target) : 1);
  nest->write();
  return [nest, sizes = GatherSizes(plan), &target](ir::Schedule& s) {
    nest->schedule(s);
    stream_large(s, sizes, target);
  };
}

}  // namespace

Strategy gather_pipelined() { return {.name = "pipelined", .fit = fit, .author = author}; }

}  // namespace gradloom
