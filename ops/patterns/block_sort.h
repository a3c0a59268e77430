#pragma once
// A sort by one block of a GPU, for nests of several ops.
#include "gradloom/builder.h"

namespace gradloom {

// Puts `own`, a buffer of `length` numbers (a power of two) that holds no number twice or does not tell equal ones
// apart, in ascending order: bitonic. The buffer is declared exclusive: the pairs of a step are apart, a power of two
// from one to the other. Gives the loop over the pairs of a step, for the threads.
ir::Loop author_block_sort(ir::KernelBuilder& b, const ir::Buffer& own, int64_t length);

}  // namespace gradloom
