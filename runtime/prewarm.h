#pragma once
// Kernels made ready ahead of their calls.
#include <span>

#include "runtime/core.h"

namespace gradloom {

// A call that fails (another library's op, memory) is counted, and the rest goes on.
PrewarmReport prewarm(Core& core, std::span<const CallKey> calls);

}  // namespace gradloom
