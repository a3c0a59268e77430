#pragma once
// For the default schedule of a CPU: large inputs that a nest reads line after line are fetched a fixed way ahead.
#include <vector>

#include "gradloom/schedule.h"
#include "gradloom/target.h"

namespace gradloom::ir {

// Prefetches, in the loop that advances along them, lines of these buffers that are not read a second time from near
// caches. Loops are those of a finished schedule: vectors and unrolled copies stand in it.
void fetch_lines(Schedule& schedule, const std::vector<Buffer>& large, const Target& target);

}  // namespace gradloom::ir
