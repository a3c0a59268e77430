#pragma once
// The structure of an IndexGrad call after dim merging: shared by its check and its nests.
#include "gradloom/plan_key.h"

namespace gradloom {

inline constexpr int max_index_inputs = 8;

// plan.views: the indices, of dims (middle); dY (outer, middle, columns); dX in its own order. plan.params: the indexed
// dims' sizes.
struct IndexKey {
  enum Role : uint8_t { outer, indexed, column };
  bool accumulate = false;
  bool merged = false;  // the indexed dims are neighbours, and one dim of dX's view
  int indices = 1, middle = 1;
  InlineVector<int64_t, max_rank> roles = {};  // of dX's dims
  template <class Key, class Visit>
  static void fields(Key& key, Visit&& visit) {
    visit(key.accumulate, key.merged, key.indices, key.middle, key.roles);
  }
};

Strategy index_touched();  // accumulates into few elements: positions sorted by element
Strategy index_grouped();  // positions sorted by row: a CPU, for rows of 32 bytes or more
Strategy index_direct();   // the definition

}  // namespace gradloom
