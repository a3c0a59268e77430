#pragma once
// Gradients that are zero whatever the values are: right, and often a mistake.
#include <string>
#include <vector>

#include "gradloom/stmt.h"

namespace gradloom::ir {

// Of each output d_x of a gradient into which it stores nothing but zeros, one line: no value of x reaches an output
// through what has a derivative, since x is only compared, rounded, an index, or passes an inactive buffer. Whoever
// derives tells the user: the command on standard error, Runtime::gradient by its log, Python by a UserWarning.
std::vector<std::string> zero_gradient_warnings(const Kernel& forward, const Kernel& gradient);
// The names of these outputs.
std::vector<std::string> zero_gradients(const Kernel& gradient);

}  // namespace gradloom::ir
