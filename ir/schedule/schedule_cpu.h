#pragma once
// The default schedule for a CPU: nests that come without one use its vectors and cores.
#include "gradloom/target.h"
#include "ir/schedule/each_nest.h"

namespace gradloom::ir {

// First scatters (schedule_scatter.h) and reductions (schedule_reductions.h). Then, for each outermost loop of a kernel
// without a schedule, by steps that are proved, or else left out:
//   - matrix products in tiles (schedule_product.h)
//   - of loops that are perfectly nested, one along which memory is contiguous goes innermost and becomes vectors
//   - where it is contiguous along one loop to write and along another to read, square tiles that lowering transposes
//   - where the innermost loops are sums in order, several sums advance together: rows that memory is not contiguous
//     along as copies, others as lanes
//   - the outermost loop that is proved independent goes to threads, unless all that it does is known to be too little;
//     a loop that is the only one is shared by pieces
//   - large outputs are written past the caches, single elements of large tables are fetched ahead (memory_hints.h)
Scheduled schedule_cpu(const Kernel& kernel, const Target& target);

}  // namespace gradloom::ir
