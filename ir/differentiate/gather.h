#pragma once
// Turns sums that are scattered into an adjoint, loop by loop, into sums that each of its elements gathers: such a nest
// runs in any order, and stores each element once.
#include "ir/analysis/ranges.h"
#include "ir/differentiate/accesses.h"
#include "ir/differentiate/forward.h"

namespace gradloom::ir {

// What every element of an adjoint is given.
struct Adjoint {
  Buffer sums;   // accumulated into
  Stmt zeros;    // that fills it before
  Buffer store;  // where complete sums are stored, if they all are; `sums` or its element's buffer of another dtype
  SumOrder::Kind order = SumOrder::loop;  // of sums over loops
};

// Replaces the accumulates into `sums` in the scope's statements, of which `zeros` is the first, from the first on as
// many as are proved to be. A replacement is certified: the map from iterations to elements and its inverse are proved
// to be each other's under the conditions that are emitted, in the loops' ranges. A statement keeps its position.
// `only_elementwise`: only where each element then gets one value, in no loop and under no condition, and where the one
// element that there is gets a sum in a tree.
// True: no accumulate is left, `store` has the sums, and `sums` is not used.
bool gather(std::vector<Stmt>& scope, const Adjoint& adjoint, const Ranges& known, bool only_elementwise,
            Accesses& accesses);

}  // namespace gradloom::ir
