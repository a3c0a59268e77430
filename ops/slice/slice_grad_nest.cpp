// SliceGrad's definition: the gradient of Slice, one loop nest over dX.
#include "ops/patterns/derived_nest.h"
#include "ops/slice/slice_grad.h"

namespace gradloom {
namespace {

using ir::Buffer;
using ir::Expr;

// The gradient of Slice, Y[q..] = X[lo + q * step..], on dense operands. With a negative step, dY's first element is
// the last of the slice in dX.
void author(KernelFrame& frame) {
  const SliceKey key = key_of<SliceKey>(frame.plan());
  const Buffer dy = key.empty ? Buffer() : frame.view(0, "dY"),
               dx = frame.view(key.empty ? 0 : 1, "dX", key.accumulate);
  if (key.empty) {
    const auto fill = [&](const std::vector<Expr>& i) { frame.builder.store(dx, i, ir::zero({dx->dtype, 1})); };
    if (!key.accumulate) frame.builder.loops("z", dx->dims, fill);
    return;
  }
  DerivedNest derived("slice", 0, ir::max_elements);
  const Buffer x = derived.forward.input("X", DType::f32, derived.dims(dx->dims)),
               y = derived.forward.output("Y", DType::f32, derived.dims(dy->dims));
  std::vector<Expr> lo(dx->dims.size());  // of dims that are not copied whole
  int p = 0;
  for (int d = 0; d < key.steps.size(); ++d) {
    if (key.steps[d] == 0) continue;
    const Expr last = dx->dims[d] - 1 - (dy->dims[d] - 1) * std::abs(key.steps[d]);
    lo[d] = frame.param(p++, "lo" + std::to_string(d), 0, last);
    derived.scalar(lo[d], 0, last);
  }
  derived.forward.loops("i", y->dims, [&](const std::vector<Expr>& q) {
    std::vector<Expr> at = q;
    for (int d = 0; d < key.steps.size(); ++d)
      if (lo[d]) at[d] = lo[d] + (key.steps[d] < 0 ? dy->dims[d] - 1 - q[d] : q[d]) * std::abs(key.steps[d]);
    derived.forward.store(y, q, ir::load(x, at));
  });
  frame.builder.append(derived.gradient({.wanted = {"X"}, .kept = {{}}}, {{"d_Y", dy}, {"d_X", dx}},
                                        key.accumulate ? sum_of : DerivedNest::Added()));
}

}  // namespace

ScheduleNest author_slice_flat(KernelFrame& frame, const ir::Target&) {
  author(frame);
  return {};
}

ScheduleNest author_slice_direct(KernelFrame& frame, const ir::Target& target) {
  author(frame);
  return [&plan = frame.plan(), &target](ir::Schedule& s) { schedule_slice_direct(s, plan, target); };
}

}  // namespace gradloom
