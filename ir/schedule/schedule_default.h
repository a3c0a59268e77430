#pragma once
// What a nest that comes without a schedule gets.
#include "gradloom/schedule.h"
#include "gradloom/target.h"

namespace gradloom::ir {

// The target's default schedule (schedule_cpu.h, schedule_gpu.h). A kernel that has a schedule keeps it: loops bound to
// a GPU, or, for a CPU, any loop that is not serial.
void schedule_default(Schedule& schedule, const Target& target);
Kernel with_default_schedule(const Kernel& kernel, const Target& target);

}  // namespace gradloom::ir
