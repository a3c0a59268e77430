#pragma once
// Which loops may run their iterations in any order: dependence analysis on N-d indices, over every load, store and
// accumulate below the loop.
#include <string>

#include "ir/analysis/ranges.h"

namespace gradloom::ir {

// Empty when iterations of `loop` are proved to access disjoint elements of every buffer that any of them writes
// (buffers allocated inside the loop are private; atomic accumulates of one op may conflict, and so may an ordered
// write with itself in the lanes of a lane loop; facts `injective` and `exclusive` are used); else the possible
// loop-carried conflict, for the refusal's message. `scope` holds what is known outside the loop.
std::string loop_carried_conflict(const For& loop, const Ranges& scope);

// The same for running all iterations statement by statement (a vector loop): only dependences whose order would change
// count as conflicts.
std::string lane_order_conflict(const For& loop, const Ranges& scope);

// The same for loop fusion, between the first `count` statements of the loop's body and the others: what the others
// touch in one iteration must not be written by the first in another, nor the reverse.
std::string fusion_conflict(const For& loop, size_t count, const Ranges& scope);

}  // namespace gradloom::ir
