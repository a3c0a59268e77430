#pragma once
// Index maps of loops, inverted with a certificate.
#include <optional>
#include <vector>

#include "ir/analysis/ranges.h"
#include "ir/rewrite.h"

namespace gradloom::ir {

// Which iterations of a loop nest access the element `at`: the loops in `summed`, in the nest's order, run over them;
// the variables of all others are `values`, of iterations where every guard holds.
struct Inverse {
  Substitution values;
  std::vector<const For*> summed;
  std::vector<Expr> guards;
};

// The inverse of the map from these loops' iterations to `index`, at the element `at` of dims `dims`; nothing where it
// is not found, or not proved. Loops' bounds depend on none of them; no lets. `known` holds outside the loops, and of
// the variables in `at`.
std::optional<Inverse> invert(const std::vector<const For*>& loops, const std::vector<Expr>& index,
                              const std::vector<Expr>& at, const Ranges& known);

// Ranges::proves, of a conjunction too, and where solved indices hold divisions.
bool proves(const Ranges& scope, const Expr& condition);

}  // namespace gradloom::ir
