#pragma once
// Elementary functions as nodes -> the nodes that compute them (math.h).
#include "gradloom/stmt.h"

namespace gradloom::ir {

// Binds the expansion of each function by lets before the statement that uses it, inside the statements around it. The
// kernel itself when it has none.
Kernel expand_math(const Kernel& kernel);

}  // namespace gradloom::ir
