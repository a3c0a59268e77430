#pragma once
// Internal to schedules: conditions that the facts known of a loop decide are folded in its body.
#include "gradloom/stmt.h"
#include "ir/analysis/ranges.h"

namespace gradloom::ir {

// The body with its conditions, guards and selects decided where `known` proves them; a conjunction keeps what is not
// proved.
Stmt fold_decided(const Stmt& body, const Ranges& known);

}  // namespace gradloom::ir
