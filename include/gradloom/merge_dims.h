#pragma once
// Merges adjacent axes into fewer, longer loops where every operand's elements stay contiguous in stride.
#include <array>

#include "gradloom/dims.h"

#pragma GCC visibility push(default)
namespace gradloom {

// One axis as seen by a dense operand and some strided ones. By default only axes of equal role merge.
template <int strided>
struct LoopDimOf {
  int64_t role = 0;
  int64_t full = 1;                        // of the dense operand
  int64_t extent = 1;                      // of the strided operands
  int64_t first = 0;                       // the dense operand's lowest index that they cover
  std::array<int64_t, strided> strides{};  // of the strided operands
};
template <int strided>
using LoopDimsOf = InlineVector<LoopDimOf<strided>, max_rank>;
using LoopDim = LoopDimOf<2>;
using LoopDims = LoopDimsOf<2>;

inline constexpr auto same_role = [](const auto& outer, const auto& inner) { return outer.role == inner.role; };

// Axes of size 1 are dropped; an inner axis that is traversed in full merges into the next outer one where
// `joins(outer, inner)`.
template <int strided, class Joins = decltype(same_role)>
LoopDimsOf<strided> merge_dims(const LoopDimsOf<strided>& dims, const Joins& joins = same_role) {
  using Dim = LoopDimOf<strided>;
  const auto in_line = [](const Dim& outer, const Dim& inner) {
    return std::equal(outer.strides.begin(), outer.strides.end(), inner.strides.begin(),
                      [&](int64_t a, int64_t b) { return a == b * inner.extent; });
  };
  LoopDimsOf<strided> merged;
  for (const Dim& d : dims) {
    if (d.full == 1 && d.extent == 1) continue;
    if (merged.empty() || d.full != d.extent || !joins(merged.back(), d) ||
        (merged.back().extent != 1 && !in_line(merged.back(), d))) {
      merged.push_back(d);
      continue;
    }
    Dim& outer = merged.back();
    outer.full *= d.full;
    outer.extent *= d.extent;
    outer.first *= d.full;
    outer.strides = d.strides;
  }
  return merged;
}

}  // namespace gradloom

#pragma GCC visibility pop
