#pragma once
// What a nest that comes without a schedule gets.
#include "gradloom/schedule.h"
#include "gradloom/target.h"
#include "ir/schedule/each_nest.h"

namespace gradloom::ir {

// The target's default schedule (schedule_cpu.h, schedule_gpu.h). A kernel that has a schedule keeps it: loops bound to
// a GPU, or, for a CPU, any loop that is not serial.
Scheduled schedule_default(const Kernel& kernel, const Target& target, Determinism level = Determinism::sequential);
Kernel with_default_schedule(const Kernel& kernel, const Target& target);

}  // namespace gradloom::ir
