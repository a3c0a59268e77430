#pragma once
// What the host can know of a size that is needed before a launch.
#include "ir/analysis/ranges.h"

namespace gradloom::ir {

// What `e`, an i64 known where `inside` holds, is at most: never negative, over these variables only, reading no
// memory, and defined wherever `outside` holds. Where `e` itself is undefined, 0. Absent: nothing is known.
Expr at_most(const Expr& e, const std::vector<Var>& known, const Ranges& inside, const Ranges& outside);

}  // namespace gradloom::ir
