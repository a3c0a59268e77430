#pragma once
// Reductions of a kernel that comes without a schedule: expanded so that vectors, and threads, can share a sum.
#include "gradloom/schedule.h"
#include "gradloom/target.h"

namespace gradloom::ir {

// For each reduction, by steps that are proved, or else left out:
//   - whose terms are contiguous along the loop around it: columns of that loop side by side, each row's as vectors
//   - else, of a tree whose terms are contiguous along its innermost variable: the partials as the lanes of vectors
//   - around which no loop is for threads to share: its parts, where there are enough terms
// Returns the loops over tiles of columns. All other loops that reductions became are done with.
std::vector<Loop> schedule_reductions_cpu(Schedule& schedule, const Target& target);

// On a GPU, whose threads share the loops around it: partials in each thread's registers. Returns the loops to unroll
// once the others are bound.
std::vector<Loop> schedule_reductions_gpu(Schedule& schedule);

// The same for one tree of many terms: its blocks to the threads of GPU blocks (Schedule::expand_staged), and the rest
// by the general schedule. `around`: the outermost of the perfectly nested, independent loops around it; 0: none.
void schedule_staged_gpu(Schedule& schedule, Loop reduction, Loop around, const Target& target);

}  // namespace gradloom::ir
