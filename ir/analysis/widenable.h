#pragma once
#include <string>

#include "gradloom/stmt.h"

namespace gradloom::ir {

// What the body of a loop may not hold when its statements are to run for all lanes at once; empty when nothing is
// wrong.
std::string not_widenable(const For& loop);

}  // namespace gradloom::ir
