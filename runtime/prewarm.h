#pragma once
// Compiles kernels ahead of their calls.
#include <span>

#include "runtime/core.h"

namespace gradloom {

// A call that fails (another library's op, out of memory) is counted, and the remaining ones are still processed.
PrewarmReport prewarm(Core& core, std::span<const CallKey> calls);

}  // namespace gradloom
