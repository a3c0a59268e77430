#pragma once
// BroadcastGrad's roles after merging: shared by its check, its nest and its schedule.
// The order of its sums follows the merged dims. Neighbouring reduced axes are one dim where dY's strides let them be
// walked as one, nested dims where a gap keeps them apart: then the same values may give other last bits. They are the
// same bits for the same strides, on every target and in every strategy.
#include "ops/plan_key.h"

namespace gradloom {

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
};

// Whether the kernel is for an empty dY alone: every strategy then writes the sums of nothing.
bool only_empty_sums(const KernelFrame& frame);
void author_empty_sums(KernelFrame& frame);
// False, and nothing is done, for another nest.
bool schedule_empty_sums(ir::Schedule& schedule, const Plan& plan, const ir::Target& target);

void author_broadcast_grad(KernelFrame& frame, const std::string& strategy, const ir::Target& target);
void schedule_broadcast_grad(ir::Schedule& schedule, const Plan& plan, const ir::Target& target);

}  // namespace gradloom
