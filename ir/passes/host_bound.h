#pragma once
// Upper bounds, evaluable on the host, of sizes needed before a launch.
#include "ir/analysis/ranges.h"

namespace gradloom::ir {

// An upper bound of `e`, an i64 known where `inside` holds: nonnegative, over these variables only, reading no memory,
// and defined wherever `outside` holds. Where `e` itself is undefined, 0. Absent: no bound is known.
Expr at_most(const Expr& e, const std::vector<Var>& known, const Ranges& inside, const Ranges& outside);

}  // namespace gradloom::ir
