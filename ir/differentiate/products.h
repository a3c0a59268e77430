#pragma once
// Products as recurrences, which have a derivative without a division: it is right at zeros.
#include "ir/differentiate/forward.h"

namespace gradloom::ir {

// The nest with each product that a gradient goes through written through a dim for each of its loops:
//
//   p = start; for k { p *= x(k) }   ->   t[0] = start; for k { t[k + 1] = t[k] * x(k) }; p = t[n]
//
// Refuses a product that more than one statement multiplies, or whose first value is not stored just before its loops.
Kernel products_as_recurrences(const Kernel& kernel, const Derivation& how);

}  // namespace gradloom::ir
