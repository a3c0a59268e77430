#pragma once
// Merges adjacent axes into fewer, longer loops where every operand's elements stay contiguous in stride.
#include <array>

#include "gradloom/dims.h"

namespace gradloom {

// One axis as seen by a dense operand and up to two strided ones. By default only axes of equal role merge.
struct LoopDim {
  int64_t role = 0;
  int64_t full = 1;                  // of the dense operand
  int64_t extent = 1;                // of the strided operands
  int64_t first = 0;                 // the dense operand's lowest index that they cover
  std::array<int64_t, 2> strides{};  // of the strided operands
};
using LoopDims = InlineVector<LoopDim, max_rank>;

inline bool same_role(const LoopDim& outer, const LoopDim& inner) { return outer.role == inner.role; }

// Axes of size 1 are dropped; an inner axis that is traversed in full merges into the next outer one where
// `joins(outer, inner)`.
template <class Joins = decltype(same_role)>
LoopDims merge_dims(const LoopDims& dims, const Joins& joins = same_role) {
  const auto in_line = [](const LoopDim& outer, const LoopDim& inner) {
    return std::equal(outer.strides.begin(), outer.strides.end(), inner.strides.begin(),
                      [&](int64_t a, int64_t b) { return a == b * inner.extent; });
  };
  LoopDims merged;
  for (const LoopDim& d : dims) {
    if (d.full == 1 && d.extent == 1) continue;
    if (merged.empty() || d.full != d.extent || !joins(merged.back(), d) ||
        (merged.back().extent != 1 && !in_line(merged.back(), d))) {
      merged.push_back(d);
      continue;
    }
    LoopDim& outer = merged.back();
    outer.full *= d.full;
    outer.extent *= d.extent;
    outer.first *= d.full;
    outer.strides = d.strides;
  }
  return merged;
}

}  // namespace gradloom
