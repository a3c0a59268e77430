#pragma once
// What the strategies "touched" and "touched_rows" share.
#include "ops/gather/gather_strategies.h"

namespace gradloom {

// Whether a call accumulates, and so few elements that touching no other is faster. `rare`: the elements of a column
// per index that make it so.
Fit touched_fit(const Plan& plan, const ir::Target& target, int64_t rare);

// Whether what is touched is worth waking threads for.
bool worth_sharing(const GatherSizes& sizes, const ir::Target& target);

// Distributes the first of these nested loops that is long enough for all threads, else the longest. `extents`: the
// call's.
void share_one_of(ir::Schedule& schedule, const std::vector<ir::Loop>& loops, const Dims& extents,
                  const ir::Target& target);

}  // namespace gradloom
