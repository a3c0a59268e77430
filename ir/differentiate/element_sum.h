#pragma once
// What an element of an adjoint gathers: one value, or sums over loops.
#include "ir/differentiate/gather.h"
#include "ir/differentiate/inverse.h"
#include "ir/differentiate/terms.h"

namespace gradloom::ir {

// A term, with which iterations of its nest add to an element.
struct Solved {
  const Term* term;
  Inverse inverse;
  Expr guard;  // the accumulate's own, absent where it is proved
  bool inside_conditions() const {
    return std::any_of(term->path.begin(), term->path.end(),
                       [](const Enclosing& e) { return e.stmt.as<If>() || e.stmt.as<Check>(); });
  }
  // Under conditions in addition to the inverse's guards.
  bool conditional() const { return guard || inside_conditions(); }
  // One value, which its guard selects: a guard on where it is added, not on what it reads.
  bool plain() const { return !inside_conditions() && inverse.guards.empty() && inverse.summed.empty(); }
};

// Stores to `to` at the element `at` the sum of these terms, in this order.
Stmt element_sum(const std::vector<Solved>& terms, const std::vector<Expr>& at, const Buffer& to,
                 const Adjoint& adjoint);

}  // namespace gradloom::ir
