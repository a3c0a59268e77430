#pragma once
// The default schedule for a CPU: nests that come without one use its vectors and cores.
#include "gradloom/schedule.h"
#include "gradloom/target.h"

namespace gradloom::ir {

// First the reductions (schedule_reductions.h). Then, for each outermost loop of a kernel without a schedule, by steps
// that are proved, or else left out:
//   - of loops that are perfectly nested, one along which memory is contiguous goes innermost and becomes vectors
//   - where it is contiguous along one loop to write and along another to read, a few lines of what is written at a
//     time
//   - where the innermost loops are sums in order, iterations of a loop around them become lanes, so that many sums
//     advance together
//   - the outermost loop that is proved independent goes to threads, unless all that it does is known to be too little;
//     a loop that is the only one is shared by pieces
void schedule_cpu(Schedule& schedule, const Target& target);

}  // namespace gradloom::ir
