#pragma once
// The strategy "partition" on a GPU, of a flat dX of a known shape: blocks sort stretches of indices by bins of
// neighbouring destinations, stably; then each bin is a block's, which adds to sums in shared memory, stretch after
// stretch, in index order.
#include "ops/gather/gather_common.h"

namespace gradloom {

// Whether there are few enough bins for the call.
bool gather_bins_serve(const Plan& plan, const ir::Target& target);
void author_gather_bins(KernelFrame& frame, const ir::Target& target);
// False, and nothing is done, for another nest.
bool schedule_gather_bins(ir::Schedule& schedule);

}  // namespace gradloom
