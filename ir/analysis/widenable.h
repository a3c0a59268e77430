#pragma once
#include <string>

#include "gradloom/stmt.h"

namespace gradloom::ir {

// Why the body of a loop cannot be vectorized statement by statement; empty when it can.
std::string not_widenable(const For& loop);

}  // namespace gradloom::ir
