#pragma once
// The derivative of one value: a reverse sweep over the graph of its expression, each node once.
#include "gradloom/builder.h"
#include "ir/differentiate/forward.h"

namespace gradloom::ir {

// What a statement adds to the adjoint of the element that `load` reads: value, where mask holds (absent: always).
struct Contribution {
  Load load;
  Expr value;  // in the accumulator's dtype of the load
  Expr mask;
};

// Contributions of `value`, whose adjoint is `adjoint` (in the accumulator's dtype of value), in the order in which the
// expression reads. Lets that they need go to the builder. `stored`: the element that holds the value, where there is
// one to read it from; else absent.
std::vector<Contribution> contributions(const Forward& forward, KernelBuilder& b, const Expr& value,
                                        const Expr& adjoint, const Expr& stored);

}  // namespace gradloom::ir
