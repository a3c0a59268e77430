#pragma once
// The general schedule of scatters on a CPU: where the destinations of a nest do not stay in a cache, it works on a
// cache's worth of them at a time, by public steps, together with what fills and stores them.
#include <vector>

#include "gradloom/schedule.h"
#include "gradloom/target.h"

namespace gradloom::ir {

// Schedules the scatters of a nest whose sizes are constants. Returns the outermost loops that need nothing more.
std::vector<Loop> schedule_scatters(Schedule& schedule, const Target& target);

}  // namespace gradloom::ir
