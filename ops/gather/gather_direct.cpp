// "direct", the definition of both gather gradients: the gradient of the forward nest, derived.
#include "ops/gather/gather_strategies.h"
#include "ops/patterns/derived_nest.h"
#include "ops/patterns/scatter.h"

namespace gradloom {
namespace {

using ir::Loop;
using Index = GatherFrame::Index;

// The forward nest of both ops, a column of X at a time, on dense operands:
//
//   column[i] = X[p.., i, q..]; Y[p.., k.., q..] = column[jj]
//
// Accumulated, X has the columns that Y may name.
void write_forward(DerivedNest& nest, const GatherFrame& views) {
  ir::KernelBuilder& b = nest.forward;
  const GatherRoles& roles = views.roles;
  std::vector<ir::Expr> x_dims = views.outer_dims(views.spanned());
  x_dims.push_back(views.axis_extent());
  for (const ir::Expr& q : views.inner_dims(views.spanned())) x_dims.push_back(q);
  const ir::Buffer indices = b.input("indices", views.indices->dtype, nest.dims(views.indices->dims));
  const ir::Buffer x = b.input("X", views.dx->dtype, nest.dims(x_dims));
  const ir::Buffer y = b.output("Y", views.dy->dtype, nest.dims(views.dy->dims));
  const GatherFrame f(b, roles, indices, y, x);
  b.loops("p", f.outer_dims(x), [&](const Index& p) {
    b.loops("q", f.inner_dims(x), [&](const Index& q) {
      const ir::Buffer column = b.alloc("column", f.sum, {f.axis_extent()});
      b.loop("i", 0, f.axis_extent(),
             [&](ir::Expr i) { b.store(column, {i}, ir::cast(f.sum, ir::load(x, f.joined(p, {i}, q)))); });
      b.guarded(roles.accumulate ? ir::Expr() : f.covered(p, q), [&] {
        b.loops("k", f.middle_dims(), [&](const Index& k) {
          f.checked_index(f.index_at(p, k, q), [&](ir::Expr j) {
            b.store(y, f.joined(p, k, q), ir::cast(y->dtype, ir::load(column, {j})));
          });
        });
      });
    });
  });
}

// The loops of the derived nest, which are the forward nest's: a column's sums are allocated inside of the outer and
// inner ones, filled with zeros, summed into and stored.
GatherColumns columns_of(const ir::Stmt& nest, const GatherRoles& roles) {
  GatherColumns loops;
  ir::Stmt s = nest;
  const auto enter = [&](std::vector<Loop>& into, int count) {
    for (int d = 0; d < count; ++d) {
      const ir::For& n = *s.as<ir::For>();
      into.push_back(n.var.id);
      s = ir::Stmt(n.body);
    }
  };
  enter(loops.outer, roles.outer), enter(loops.inner, roles.inner);
  const ir::Alloc& sums = *s.as<ir::Alloc>();
  loops.sums = sums.buffer;
  const std::vector<ir::Stmt>& parts = sums.body.as<ir::Block>()->stmts;
  loops.zero = parts.at(0).as<ir::For>()->var.id, loops.store = parts.at(2).as<ir::For>()->var.id;
  s = parts.at(1).as<ir::If>() ? parts.at(1).as<ir::If>()->then_case : parts.at(1);
  enter(loops.middle, roles.middle);
  return loops;
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

}  // namespace

GatherColumns author_gather_columns(const GatherFrame& f) {
  GatherColumns loops;
  if (!f.roles.empty) {
    DerivedNest derived("gather", 1, ir::max_elements);
    write_forward(derived, f);
    const ir::Stmt nest = derived.gradient({.wanted = {"X"}, .kept = {{"indices"}}},
                                           {{"indices", f.indices}, {"d_Y", f.dy}, {"d_X", f.dx}},
                                           f.roles.accumulate ? added_to : DerivedNest::Added());
    loops = columns_of(nest, f.roles);
    f.b.append(nest);
  } else if (f.roles.only_checks) {
    loops.middle = f.b.loops("k", f.indices->dims, [&](const Index& k) { f.checked_index(k, [](const ir::Expr&) {}); });
  } else if (!f.roles.accumulate) {
    loops.zero = f.b.loop("z", 0, f.dx->dims[0], [&](ir::Expr i) { f.b.store(f.dx, {i}, ir::zero({f.dx->dtype, 1})); });
  }
  return loops;
}

Strategy gather_direct() {
  return {.name = "direct",
          .fit = [](const Plan&, const ir::Target& target, bool) { return preferred_if(!target.gpu); },
          .author = author_direct};
}

}  // namespace gradloom
