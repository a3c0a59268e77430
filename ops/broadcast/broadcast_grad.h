#pragma once
// BroadcastGrad's roles after dim merging, and the order of its sums: shared by its check, its nests and its schedules.
//
// A sum is a tree (SumOrder), the same on every target and in every strategy: over the reduced dims, outermost first,
// with blocks of 256 elements where the innermost dim of dY's view is reduced, else of 16.
//
// The order follows the merged dims. Neighbouring reduced axes are one dim where dY's strides let them be walked as
// one, nested dims where a gap prevents merging: the same values may then differ in the last bits. Equal strides give
// equal bits.
#include "gradloom/plan_key.h"

namespace gradloom {

inline constexpr int64_t partials = ir::sum_partials, block_elements = 256;

struct ReduceKey {
  bool accumulate = false;
  InlineVector<int, max_rank> roles;  // of each dim of dY's view: 1 when it is reduced
  template <class Key, class Visit>
  static void fields(Key& key, Visit&& visit) {
    visit(key.accumulate, key.roles);
  }
};

// plan.views: dY, dX (its dims are the kept ones; [1] when there is none).
struct ReduceRoles {
  explicit ReduceRoles(const Plan& plan) : ReduceRoles(key_of<ReduceKey>(plan)) {}
  explicit ReduceRoles(const ReduceKey& key) : accumulate(key.accumulate) {
    for (int d = 0; d < key.roles.size(); ++d) (key.roles[d] != 0 ? reduced : kept).push_back(d);
  }
  bool accumulate;
  InlineVector<int, max_rank> kept, reduced;  // dims of dY's view; of an empty dY all reduced ones are 0, or all dims
  int rank() const { return kept.size() + reduced.size(); }
  bool columns() const { return !kept.empty() && kept.back() == rank() - 1; }  // the innermost dim is kept

  int64_t block() const { return columns() ? partials : block_elements; }  // of the innermost reduced dim
};

// What the schedules of "direct" and "split" use.
struct SumNest {
  std::vector<ir::Loop> kept;  // one per kept dim, outermost first, but that of columns
  ir::Loop columns = 0;        // over the innermost dim, where it is kept and others are reduced
  ir::Loop reduction = 0;      // none where nothing is reduced
  int64_t tile = 64;           // columns whose sums advance together
};

ScheduleNest author_broadcast_direct(KernelFrame& frame, const ir::Target& target);
void schedule_broadcast_direct(ir::Schedule& s, const SumNest& nest, const Plan& plan, const ir::Target& target);

// Stores every part's total, so that all threads share the reduction of one output row.
ScheduleNest author_broadcast_split(KernelFrame& frame, const ir::Target& target);
void schedule_broadcast_split(ir::Schedule& s, const SumNest& nest, const Plan& plan, const ir::Target& target);

// For a GPU: threads sum blocks in parallel into shared memory, one reduced dim after the other, innermost first.
ScheduleNest author_broadcast_staged(KernelFrame& frame, const ir::Target& target);

}  // namespace gradloom
