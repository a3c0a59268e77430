#pragma once
// The strategy "grouped" on a GPU (rows, or single elements of a flat dX), for kernels of a known shape: a parallel sort, then a sum a row.
#include "ops/gather_common.h"

namespace gradloom {

void author_gather_sorted(KernelFrame& frame);
// False, and nothing is done, for another nest.
bool schedule_gather_sorted(ir::Schedule& schedule, const Plan& plan, const ir::Target& target);

}  // namespace gradloom
