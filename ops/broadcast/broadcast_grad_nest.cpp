// The nest of BroadcastGrad: its strategies are schedules of it.
#include "ir/schedule/schedule_reductions.h"
#include "ops/broadcast/broadcast_grad.h"
#include "ops/patterns/derived_nest.h"
#include "ops/patterns/integer_math.h"

namespace gradloom {
namespace {

using ir::Expr;
using Index = std::vector<Expr>;

// Expand: Y[kept.., reduced..] = X[kept..], in the order of Y's dims; a column of X innermost of the kept ones.
void write_expand(DerivedNest& nest, const ReduceRoles& roles, const ir::Buffer& x_view, const ir::Buffer& y_view) {
  ir::KernelBuilder& b = nest.forward;
  const ir::Buffer y = b.output("Y", y_view->dtype, nest.dims(y_view->dims));
  Index x_dims;
  for (const int d : roles.kept) x_dims.push_back(y->dims[d]);
  if (roles.kept.empty()) x_dims.push_back(1);
  const ir::Buffer x = b.input("X", x_view->dtype, x_dims);
  Index at(roles.rank());
  const auto along = [&](const char* name, const auto& dims, const std::function<void()>& body) {
    std::function<void(int)> enter = [&](int i) {
      if (i == dims.size()) return body();
      const int d = dims[i];
      const bool column = roles.columns() && d + 1 == roles.rank();
      b.loop(column ? "column" : name + std::to_string(d), 0, y->dims[d], [&](Expr e) {
        at[d] = e;
        enter(i + 1);
      });
    };
    enter(0);
  };
  along("p", roles.kept, [&] {
    Index at_x;
    for (const int d : roles.kept) at_x.push_back(at[d]);
    if (at_x.empty()) at_x.push_back(0);
    along("r", roles.reduced, [&] { b.store(y, at, ir::load(x, at_x)); });
  });
}

// Its gradient on the frame's views: a loop for each kept dim around a sum in a tree.
SumNest author_sums(KernelFrame& frame) {
  const ReduceRoles roles(frame.plan());
  const ir::Buffer y = frame.view(0, "dY"), x = frame.view(1, "dX", roles.accumulate);
  DerivedNest derived("expand", 0, ir::max_elements);
  write_expand(derived, roles, x, y);
  ir::Stmt nest = derived.gradient({.wanted = {"X"}, .kept = {{}}, .sums = ir::SumOrder::tree},
                                   {{"d_Y", y}, {"d_X", x}}, roles.accumulate ? sum_of : total_of);
  frame.builder.append(nest);
  SumNest loops;
  for (const int d : roles.kept) {
    const ir::For& n = *nest.as<ir::For>();
    const bool column = roles.columns() && !roles.reduced.empty() && d + 1 == roles.rank();
    if (column)
      loops.columns = n.var.id;
    else
      loops.kept.push_back(n.var.id);
    nest = ir::Stmt(n.body);
  }
  ir::walk(nest, [&](const ir::Stmt& s) {
    if (const ir::Reduce* n = s.as<ir::Reduce>()) loops.reduction = n->ranges[0].var.id;
  });
  return loops;
}

// Columns that share a row of accumulators: as many as stay in the L1 cache along with the data read, fewer where there
// would be too few tasks for all threads. Rows are read in long contiguous pieces, as only those reach full memory
// bandwidth. On a GPU, one column per thread: neighbouring columns go to neighbouring threads, sums are in registers.
int64_t column_tile(const KernelFrame& frame, const ir::Target& target) {
  constexpr int64_t any = 256;
  if (target.gpu) return 1;
  const View& x = frame.plan().views[1];
  const int64_t most = 4096 / size_of(accumulator_of(x.dtype));
  if (frame.any_shape()) return any;
  const int64_t columns = std::max<int64_t>(x.dims.back(), 1),
                rows = std::max<int64_t>(element_count(x.dims) / columns, 1), line = ir::line_bytes / size_of(x.dtype);
  const int64_t pieces = ceil_div(target.threads, rows), piece = round_up(ceil_div(columns, pieces), line);
  return std::clamp<int64_t>(piece, 1, std::min(columns, most));
}

}  // namespace

ScheduleNest author_broadcast_direct(KernelFrame& frame, const ir::Target& target) {
  SumNest nest = author_sums(frame);
  if (nest.columns) nest.tile = column_tile(frame, target);
  return [nest, &plan = frame.plan(), &target](ir::Schedule& s) { schedule_broadcast_direct(s, nest, plan, target); };
}

ScheduleNest author_broadcast_split(KernelFrame& frame, const ir::Target& target) {
  return [nest = author_sums(frame), &plan = frame.plan(), &target](ir::Schedule& s) {
    schedule_broadcast_split(s, nest, plan, target);
  };
}

ScheduleNest author_broadcast_staged(KernelFrame& frame, const ir::Target& target) {
  const SumNest nest = author_sums(frame);
  const ir::Loop around = nest.kept.empty() ? nest.columns : nest.kept[0];
  return [reduction = nest.reduction, around, &target](ir::Schedule& s) {
    ir::schedule_staged_gpu(s, reduction, around, target);
  };
}

}  // namespace gradloom
