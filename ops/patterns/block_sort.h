#pragma once
// A sort by one thread block of a GPU, for nests of several ops.
#include "gradloom/builder.h"

namespace gradloom {

// Bitonic sort, ascending, of `own`: a buffer of `length` (a power of two) integers that are unique, or interchangeable
// where equal. The buffer is declared exclusive: the pairs of a step are disjoint, their elements a power of two apart.
// Returns the loop over the pairs of a step, to be bound to threads.
ir::Loop author_block_sort(ir::KernelBuilder& b, const ir::Buffer& own, int64_t length);

}  // namespace gradloom
