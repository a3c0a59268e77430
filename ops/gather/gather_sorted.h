#pragma once
// The strategies "grouped" and "chunked" on a GPU (rows, or single elements of a flat dX), for kernels of a known
// shape: a parallel sort, then a sum a row. In chunks, long groups are summed by a block each: chunks of equal length
// in order, then the chunks in order.
#include "ops/gather/gather_common.h"

namespace gradloom {

void author_gather_sorted(KernelFrame& frame, bool chunked);
// False, and nothing is done, for another nest.
bool schedule_gather_sorted(ir::Schedule& schedule, const Plan& plan, const ir::Target& target);

}  // namespace gradloom
