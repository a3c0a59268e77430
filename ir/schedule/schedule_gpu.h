#pragma once
// The default schedule for a GPU: any nest runs, correctly and without a hand-written schedule.
#include "gradloom/schedule.h"
#include "gradloom/target.h"

namespace gradloom::ir {

// For each outermost loop of the kernel (loops that are already bound stay as they are):
//   - perfectly nested loops that are proved parallel are fused and split into blocks of threads; the loop with
//     contiguous accesses goes innermost, to adjacent threads, with 16 bytes per thread where its length allows
//   - a short outer loop around parallel ones maps its iterations to blocks, the inner ones to threads
//   - a loop that is not proved but contains parallel loops stays in the host part, with one or more launches per
//     iteration
//   - the remainder runs in order, in a launch of one block (passes/outline_kernels.cpp)
void schedule_gpu(Schedule& schedule, const Target& target);

// Unrolls those of the loops that are still serial: per-thread partials then have constant indices, and are registers.
void unroll_left(Schedule& schedule, const std::vector<Loop>& own);

// Schedules one loop (and its nest) likewise; true when something was bound. For ops with their own schedules for the
// other loops.
bool schedule_gpu(Schedule& schedule, Schedule::Loop loop, const Target& target);

}  // namespace gradloom::ir
