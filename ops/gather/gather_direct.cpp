// "direct", the definition of both gather gradients: the gradient of the forward nest, derived. "atomic", on a
// GPU: the same nest with sums in dX itself, every element added by an atomic, in any order; a GPU's atomic adds of f32
// flush denormals to zero.
#include "ir/rewrite.h"
#include "ir/schedule/schedule_gpu.h"
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
          .fit = [](const Plan&, const ir::Target&, bool) { return Fit::possible; },
          .author = author_direct};
}
Strategy gather_atomic() {
  return {.name = "atomic", .level = Determinism::relaxed, .fit = fit_atomic, .author = author_atomic};
}

}  // namespace gradloom
