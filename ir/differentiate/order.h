#pragma once
// In which order the forward nest accesses an element: what must not be, and which loops the gradient runs backwards.
#include "ir/differentiate/forward.h"

namespace gradloom::ir {

// Refuses a nest in which an element that a gradient goes through is written again once it was stored by an active
// value or read.
void require_single_assignment(const Forward& forward);
// The same for buffers whose values the gradient reads again: no write to an element after a read of it.
void require_final(const Forward& forward, const Buffer& buffer);
// The loops, by their variables' ids, in which an iteration may read an active element that an earlier one has written.
std::unordered_set<int64_t> carried_loops(const Forward& forward);

}  // namespace gradloom::ir
