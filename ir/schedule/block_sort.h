#pragma once
// A sort by one thread block of a GPU, for steps that sort a part of the iterations at a time.
#include "gradloom/builder.h"

namespace gradloom::ir {

// Bitonic sort, ascending, of `own`: a buffer of `length` (a power of two) integers that are unique, or interchangeable
// where equal. The buffer is declared exclusive: the pairs of a step are disjoint, their elements a power of two apart.
// Returns the loop over the pairs of a step, to be bound to threads.
Loop author_block_sort(KernelBuilder& b, const Buffer& own, int64_t length);

// The step's argument `run`, what a block sorts: a power of two, 2 to 65536.
void require_run(const std::string& step, const For& loop, int64_t run);

}  // namespace gradloom::ir
