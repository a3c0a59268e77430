#pragma once
// The structure of an EmbeddingBagGrad call: shared by its check and its nest.
#include "gradloom/plan_key.h"

namespace gradloom {

// plan.views: indices, offsets, dY, per_sample_weights where given, max_indices in mode max, dX. plan.params: the row
// of padding_idx where there is one.
struct BagKey {
  enum Mode : uint8_t { sum, mean, max };
  bool accumulate = false;
  Mode mode = mean;
  bool last_offset = false, by_frequency = false, padding = false, weights = false;
  template <class Key, class Visit>
  static void fields(Key& key, Visit&& visit) {
    visit(key.accumulate, key.mode, key.last_offset, key.by_frequency, key.padding, key.weights);
  }
};

Strategy embedding_bag_touched();  // accumulates into few rows: positions sorted by row
Strategy embedding_bag_grouped();  // indices sorted by row: a CPU, for rows of 32 bytes or more
Strategy embedding_bag_direct();   // the definition

}  // namespace gradloom
