#pragma once
// Elementary functions as nodes -> the nodes that compute them (math.h).
#include <vector>

#include "gradloom/stmt.h"

namespace gradloom::ir {

// What computes n's function of x, a variable: definitions, each of which may use those before it, and the value.
struct MathExpansion {
  struct Definition {
    Var var;
    Expr value;
  };
  std::vector<Definition> lets;
  Expr value;
};
MathExpansion expand_math(const Math& n, const Expr& x);

// Binds the expansion of each function by lets before the statement that uses it, inside the statements around it. The
// kernel itself when it has none.
// Reductions keep theirs, as there is no place for a let before each of their terms: expand_reductions comes first.
Kernel expand_math(const Kernel& kernel);

}  // namespace gradloom::ir
