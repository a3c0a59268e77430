#pragma once
// Internal to schedules: whether memory is proved to have been written.
#include <vector>

#include "ir/schedule/site.h"

namespace gradloom::ir {

// Whether the first statement that accesses the buffer fills the whole window: a loop nest around one store whose index
// traverses it, perhaps under conditions that hold wherever the buffer has an element.
// The rest of the window, beyond the buffer's edges, is then not written: `partly`.
bool writes_region(const Stmt& body, const Buffer& buffer, const std::vector<Expr>& begin,
                   const std::vector<Expr>& extent, const Ranges& known, bool* partly = nullptr);

// Whether a statement that always executes before the loop fills the window, or the whole buffer.
bool filled_before(const Site& site, const Buffer& buffer, const std::vector<Expr>& begin,
                   const std::vector<Expr>& extent);

}  // namespace gradloom::ir
