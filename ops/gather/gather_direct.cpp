// "direct", the definition of both gather gradients: one column of dX at a time, summed in index order. "atomic", on a
// GPU: the same nest with sums in dX itself, every element added by an atomic, in any order; a GPU's atomic adds of f32
// flush denormals to zero.
#include "ir/rewrite.h"
#include "ir/schedule/schedule_gpu.h"
#include "ops/gather/gather_strategies.h"

namespace gradloom {
namespace {

using ir::Loop;
using Index = GatherFrame::Index;

void author_column(const GatherFrame& f, const Index& p, const Index& q, GatherColumns& loops) {
  ir::KernelBuilder& b = f.b;
  const ir::Buffer acc = loops.sums = b.alloc("acc", f.sum, {f.axis_extent()});
  loops.zero = b.loop("z", 0, f.axis_extent(), [&](ir::Expr i) { b.store(acc, {i}, ir::zero({f.sum, 1})); });
  b.guarded(f.roles.accumulate ? ir::Expr() : f.covered(p, q), [&] {
    loops.middle = b.loops("k", f.middle_dims(), [&](const Index& k) {
      f.checked_index(f.index_at(p, k, q),
                      [&](ir::Expr j) { b.accumulate(acc, {j}, ir::cast(f.sum, ir::load(f.dy, f.joined(p, k, q)))); });
    });
  });
  loops.store =
      b.loop("i", 0, f.axis_extent(), [&](ir::Expr i) { f.store_total(f.joined(p, {i}, q), ir::load(acc, {i})); });
}

// Parallelises the first dim with enough work for every thread, else the longest.
void schedule_direct(ir::Schedule& schedule, const GatherColumns& loops, const Plan& plan, const ir::Target& target) {
  const GatherRoles roles = gather_roles(plan);
  if (roles.empty || plan.bytes_read + plan.bytes_written < parallel_bytes) return;
  const View& dx = plan.views[2];
  int best = -1;
  for (int d = 0; d < dx.dims.size(); ++d) {
    if (d == roles.axis()) continue;
    if (best < 0 || dx.dims[d] > dx.dims[best]) best = d;
    if (dx.dims[d] >= wanted_tasks(target)) break;
  }
  if (best >= 0) schedule.parallel(best < roles.outer ? loops.outer[best] : loops.inner[best - roles.outer - 1]);
}

ScheduleNest author_direct(KernelFrame& frame, const ir::Target& target) {
  const auto loops = author_gather_columns(GatherFrame(frame, gather_roles(frame.plan())));
  if (target.gpu) return {};
  return [loops, &plan = frame.plan(), &target](ir::Schedule& s) { schedule_direct(s, loops, plan, target); };
}

Fit fit_atomic(const Plan& plan, const ir::Target& target, bool) {
  const GatherSizes s(plan);
  const DType dtype = plan.views.back().dtype;
  if (!target.gpu || s.roles.empty || (dtype != DType::f32 && dtype != DType::f64)) return Fit::none;
  return preferred_if(s.sortable());
}

// Sums in dX itself: filled with zeros, or accumulated into as it is; then all that is added, atomically, with columns
// of the inner dims innermost.
void schedule_atomic(ir::Schedule& s, const GatherColumns& loops, bool accumulate, const ir::Target& target) {
  s.sum_in_place(loops.store, loops.sums);
  std::vector<Loop> columns = loops.outer;
  columns.insert(columns.end(), loops.inner.begin(), loops.inner.end());
  Loop outermost = columns.empty() ? loops.middle[0] : columns[0];
  if (!accumulate) {
    for (size_t d = columns.size(); d-- > 0;) outermost = s.distribute(columns[d]).back();
    for (size_t q = loops.inner.size(); q-- > 0;) s.reorder(loops.inner[q], loops.zero);
  }
  std::vector<Loop> nest{outermost};  // of what is added, outermost first
  for (const ir::For* f : ir::loops_below(s.get(outermost).body)) nest.push_back(f->var.id);
  for (size_t q = columns.size(); q-- > loops.outer.size();)
    for (size_t k = columns.size(); k < nest.size(); ++k) s.reorder(nest[q], nest[k]);
  const Loop first = loops.outer.empty() ? nest[loops.inner.size()] : nest[0];
  s.atomic(first, s.kernel().buffers.back());
  ir::schedule_gpu(s, target);
}

ScheduleNest author_atomic(KernelFrame& frame, const ir::Target& target) {
  const GatherRoles roles = gather_roles(frame.plan());
  return [loops = author_gather_columns(GatherFrame(frame, roles)), roles, &target](ir::Schedule& s) {
    schedule_atomic(s, loops, roles.accumulate, target);
  };
}

}  // namespace

GatherColumns author_gather_columns(const GatherFrame& f) {
  GatherColumns loops;
  if (!f.roles.empty) {
    loops.outer = f.b.loops("p", f.outer_dims(f.spanned()), [&](const Index& p) {
      loops.inner = f.b.loops("q", f.inner_dims(f.spanned()), [&](const Index& q) { author_column(f, p, q, loops); });
    });
  } else if (f.roles.only_checks) {
    loops.middle = f.b.loops("k", f.indices->dims, [&](const Index& k) { f.checked_index(k, [](const ir::Expr&) {}); });
  } else if (!f.roles.accumulate) {
    loops.zero = f.b.loop("z", 0, f.dx->dims[0], [&](ir::Expr i) { f.b.store(f.dx, {i}, ir::zero({f.dx->dtype, 1})); });
  }
  return loops;
}

Strategy gather_direct() {
  return {.name = "direct",
          .fit = [](const Plan&, const ir::Target&, bool) { return Fit::possible; },
          .author = author_direct};
}
Strategy gather_atomic() {
  return {.name = "atomic", .level = Determinism::relaxed, .fit = fit_atomic, .author = author_atomic};
}

}  // namespace gradloom
