#pragma once
// Fewer, longer loops: adjacent axes become one where every operand's elements stay in line.
#include "support/dims.h"

namespace gradloom {

// One axis as up to two strided operands see it. Axes merge only with their own role.
struct LoopDim {
  int role = 0;
  int64_t full = 1;    // of the dense operand
  int64_t extent = 1;  // of the strided operands: its first `extent` indices
  int64_t stride_a = 0, stride_b = 0;
};
using LoopDims = InlineVector<LoopDim, max_rank>;

// Axes of size 1 vanish; an inner axis that is walked whole joins the one outside it.
LoopDims merge_dims(const LoopDims& dims);

}  // namespace gradloom
