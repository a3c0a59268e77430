#pragma once
// What the strategies "touched" and "touched_rows" share: dX lends them an element's memory for a position's number.
#include "ops/gather/gather_strategies.h"

namespace gradloom {

// Indices per column whose positions an element of dX can hold.
int64_t most_positions(DType dtype);

// Whether a call accumulates, and so few elements that touching no other is faster. `rare`: the elements of a column
// per index that make it so.
Fit touched_fit(const Plan& plan, const ir::Target& target, bool any_shape, int64_t rare);

// Writes `body(shared)`, with loops to be distributed over threads or not; in the kernel for any shape both, by the
// call's size, and the definition for a call whose positions no element can hold.
void author_touched(const GatherFrame& f, const ir::Target& target, const ir::Expr& count,
                    const std::function<void(bool shared)>& body);

// Distributes the first of these nested loops that is long enough for all threads, else the longest. `extents`: the
// call's.
void share_one_of(ir::Schedule& schedule, const std::vector<ir::Loop>& loops, const Dims& extents,
                  const ir::Target& target);

}  // namespace gradloom
