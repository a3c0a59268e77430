#pragma once
// Values that are stored to be read once are computed where they are read.
#include "gradloom/stmt.h"
#include "ir/differentiate/accesses.h"

namespace gradloom::ir {

// A block in which one nest fills the buffer, an element an iteration, and in which one load of it follows, evaluated
// once an element: without the nest, and with the value in the load's place. Any other statement is itself.
Stmt read_in_place(const Stmt& s, const Buffer& buffer, Accesses& accesses);

}  // namespace gradloom::ir
