#pragma once
// The general schedule for a GPU: any nest runs, right and without a hand-written schedule.
#include "gradloom/schedule.h"
#include "gradloom/target.h"

namespace gradloom::ir {

// For each outermost loop of the kernel (what is bound already stays as it is):
//   - perfectly nested loops that are proved parallel become one, cut into blocks of threads; the one that walks
//   neighbouring elements goes to neighbouring
//     threads, and where its length allows each thread has 16 bytes of them
//   - a short outer loop around parallel ones gives its iterations to blocks, theirs to threads
//   - a loop that is not proved but holds parallel loops stays in the host part, a launch (or several) an iteration
//   - what is left runs in order, in a launch of one block (passes/outline_kernels.cpp)
void schedule_gpu(Schedule& schedule, const Target& target);

// One loop (and what is nested in it) that way; true when something was bound. For ops whose other loops have schedules
// of their own.
bool schedule_gpu(Schedule& schedule, Schedule::Loop loop, const Target& target);

}  // namespace gradloom::ir
