#pragma once
// The adjoint of an elementwise nest, multiplied last.
#include <vector>

#include "gradloom/stmt.h"

namespace gradloom::ir {

// A gradient's body, where each stored value is one element of an adjoint times factors that do not depend on it: with
// the factors computed first, and their product multiplied by the element. The chain rule's order, from the element on,
// gives inf * 0 where an infinite element meets factors of which one is 0, and rounds more often. Any other body is
// itself.
Stmt adjoint_last(const Stmt& body, const std::vector<Buffer>& adjoints);

}  // namespace gradloom::ir
