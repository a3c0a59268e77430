#pragma once
// Which loops may run their iterations in any order: proved on N-d indices, by reading every load, store and accumulate
// below the loop.
#include <string>

#include "ir/analysis/ranges.h"

namespace gradloom::ir {

// Empty when iterations of `loop` are proved to touch disjoint elements of every buffer that any of them writes
// (buffers allocated inside the loop are private; atomic accumulates of one op may conflict, and so may an ordered
// write with itself; facts `injective` and `exclusive` are used); else what could conflict, for the refusal's message.
// `scope` holds what is known outside the loop.
std::string loop_carried_conflict(const For& loop, const Ranges& scope);

// The same question for running all iterations statement by statement (a vector loop): a conflict is only one whose
// order would change.
std::string lane_order_conflict(const For& loop, const Ranges& scope);

}  // namespace gradloom::ir
