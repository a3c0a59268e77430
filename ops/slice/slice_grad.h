#pragma once
// The structure of a SliceGrad call after dim merging: shared by its check, its nest and its schedule.
#include "gradloom/plan_key.h"

namespace gradloom {

// A window writes dX at lo, lo + |step|, ...; with step < 0, the last of them is dY's first.
// plan.params: lo of every window. plan.views: dY (unless empty), dX.
struct SliceKey {
  bool accumulate = false, empty = false;
  InlineVector<int64_t, max_rank> steps;  // per merged dim; 0: it is copied whole; windows of one element have step 1
  template <class Key, class Visit>
  static void fields(Key& key, Visit&& visit) {
    visit(key.accumulate, key.empty, key.steps);
  }
};

// Whether dX is too large to stay in a cache: it is then written by streaming stores.
bool stream_slice(const Plan& plan, const SliceKey& key, const ir::Target& target);

ScheduleNest author_slice_flat(KernelFrame& frame, const ir::Target& target);
ScheduleNest author_slice_direct(KernelFrame& frame, const ir::Target& target);  // the same nest, and its recipe
void schedule_slice_direct(ir::Schedule& schedule, const Plan& plan, const ir::Target& target);

}  // namespace gradloom
