// The strategies of both gather gradients without a plan of their own. "direct", the definition: one column of dX at a
// time, summed in index order. "atomic": element by element.
#include "ops/gather/gather_common.h"
#include "ops/patterns/schedule_common.h"

namespace gradloom {
namespace {

using Index = GatherFrame::Index;

void column(const GatherFrame& f, const Index& p, const Index& q) {
  ir::KernelBuilder& b = f.b;
  const ir::Buffer acc = b.alloc("acc", f.sum, {f.axis_extent()});
  b.loop("z", 0, f.axis_extent(), [&](ir::Expr i) { b.store(acc, {i}, ir::zero({f.sum, 1})); });
  b.guarded(f.covered(p, q), [&] {
    b.loops("k", f.middle_dims(), [&](const Index& k) {
      f.checked_index(f.index_at(p, k, q),
                      [&](ir::Expr j) { b.accumulate(acc, {j}, ir::cast(f.sum, ir::load(f.dy, f.joined(p, k, q)))); });
    });
  });
  b.loop("i", 0, f.axis_extent(), [&](ir::Expr i) { f.store_total(f.joined(p, {i}, q), ir::load(acc, {i})); });
}

}  // namespace

void author_gather_direct(KernelFrame& frame) {
  const GatherFrame f(frame, gather_roles(frame.plan()));
  if (!f.roles.empty) {
    f.b.loops("p", f.outer_dims(f.dx),
              [&](const Index& p) { f.b.loops("q", f.inner_dims(f.dx), [&](const Index& q) { column(f, p, q); }); });
  } else if (f.roles.only_checks) {
    f.b.loops("k", f.indices->dims, [&](const Index& k) { f.checked_index(k, [](const ir::Expr&) {}); });
  } else if (!f.roles.accumulate) {
    f.b.loop("z", 0, f.dx->dims[0], [&](ir::Expr i) { f.b.store(f.dx, {i}, ir::zero({f.dx->dtype, 1})); });
  }
}

bool has_atomic_adds(DType dtype) { return dtype == DType::f32 || dtype == DType::f64; }

void author_gather_atomic(KernelFrame& frame) {
  const GatherFrame f(frame, gather_roles(frame.plan()), true);
  ir::KernelBuilder& b = f.b;
  if (!f.roles.accumulate)
    b.loops("z", f.dx->dims, [&](const Index& i) { b.store(f.dx, i, ir::zero({f.dx->dtype, 1})); });
  b.loops("p", f.outer_dims(f.dy), [&](const Index& p) {
    b.loops("k", f.middle_dims(), [&](const Index& k) {
      b.loops("q", f.inner_dims(f.dy), [&](const Index& q) {
        f.checked_index(f.index_at(p, k, q), [&](const ir::Expr& j) {
          b.accumulate(f.dx, f.joined(p, {j}, q), ir::load(f.dy, f.joined(p, k, q)), ir::AccumulateOp::add, {}, true);
        });
      });
    });
  });
}

void schedule_gather_direct(ir::Schedule& schedule, const Plan& plan, const ir::Target& target) {
  if (plan.bytes_read + plan.bytes_written < parallel_bytes) return;
  const GatherRoles roles = gather_roles(plan);
  if (roles.empty) return;
  // The first dim with enough work for every thread, else the longest.
  const View& dx = plan.views[2];
  int best = -1;
  for (int d = 0; d < dx.dims.size(); ++d) {
    if (d == roles.axis()) continue;
    if (best < 0 || dx.dims[d] > dx.dims[best]) best = d;
    if (dx.dims[d] >= wanted_tasks(target)) break;
  }
  if (best >= 0)
    schedule.parallel(
        schedule.loop(best < roles.outer ? "p" + std::to_string(best) : "q" + std::to_string(best - roles.outer - 1)));
}

}  // namespace gradloom
