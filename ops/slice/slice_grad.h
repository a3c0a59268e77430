#pragma once
// How SliceGrad sees a call after merging: shared by its check, its nest and its schedule.
#include "ops/plan_key.h"

namespace gradloom {

// One merged dim. A window writes dX at lo, lo + |step|, ...; with step < 0, the last of them is dY's first.
struct SliceDim {
  int64_t dx = 1, dy = 1;  // extents
  int64_t dy_stride = 0;
  int64_t lo = 0;    // the lowest index written
  int64_t step = 0;  // 0: the whole dim is copied; windows of one element have step 1
};
using SliceDims = InlineVector<SliceDim, max_rank>;

// plan.params: lo of every window. plan.views: dY (unless empty), dX.
struct SliceKey {
  bool accumulate = false, empty = false;
  InlineVector<int64_t, max_rank> steps;  // one a dim
  template <class Key, class Visit>
  static void fields(Key& key, Visit&& visit) {
    visit(key.accumulate, key.empty, key.steps);
  }
};

// Whether dX is too large to stay in a cache: its lines are then written past them.
bool stream_slice(const Plan& plan, const SliceKey& key, const ir::Target& target);

void author_slice_grad(KernelFrame& frame, const std::string& strategy, const ir::Target& target);
void schedule_slice_grad(ir::Schedule& schedule, const Plan& plan, const ir::Target& target);

}  // namespace gradloom
