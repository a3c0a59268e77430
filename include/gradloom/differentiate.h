#pragma once
// Reverse-mode differentiation of loop nests: from what a nest computes, the nest of its gradient, proved or refused.
//
//   Kernel gradient = differentiate(forward, {.wanted = {"x"}});
//
// The gradient's parameters are the forward nest's scalars; its inputs and outputs that are kept, all as inputs under
// their own names; the adjoint `d_y` of every float output y, an input; and the adjoint `d_x` of every wanted input x,
// an output. d_x[i] is the sum over all outputs y and elements j of d_y[j] times the derivative of y[j] by x[i].
//
// What the nest must be: authored (serial loops, scalars), parameters in or out. An element of a buffer that a gradient
// goes through is stored once, then possibly accumulated into, and not written again once it was read; a recurrence
// goes through a dim of its loop. A value that is needed again is read where it is kept, else computed again. Loops,
// conditions, checks and data-dependent indices are any. Whatever has no rule, or is not proved, is refused in one line
// that says what to change; nothing is left out.
//
// Values: an adjoint of f16 or bf16 is computed in f32 and rounded once, where it is stored. A select passes the
// gradient to the side that was chosen only, so no NaN comes from the other one. Comparisons, floor, ceil, trunc,
// integers and indices pass none. Sums are taken in the forward nest's order of iterations, or, where an element
// gathers its parts, in a tree's if that is asked for.
#include <optional>
#include <string>
#include <vector>

#include "gradloom/refusal.h"
#include "gradloom/stmt.h"
#include "gradloom/text.h"

#pragma GCC visibility push(default)
namespace gradloom::ir {

// Which operands of min and max that are equal get the gradient: both, half each (of an accumulate that is a minimum or
// maximum: all that are equal to it, evenly), as PyTorch's maximum, minimum and amax do; the first; the second (relu,
// as max(x, 0)); or none (clamp). Where an operand is NaN both get it, but for `none`; of an accumulate, what is NaN.
enum class Tie : uint8_t { halves, first, second, none };
inline constexpr Tie all_ties[] = {Tie::halves, Tie::first, Tie::second, Tie::none};
const char* to_string(Tie tie);

// What the gradient reads where it would need a value of the forward nest again: an expression of what is kept, of
// loop variables around the buffer's allocation, and of its own index. Its author's word, as an inactive buffer is: of
// y[j] = e[j] / total with e[j] = exp(x[j] - top), top inactive, the gradient may take y for e and 1 for total, since
// its value is the same at any top, and at one of them they are that.
using Known = ElementValue;

struct Derivation {
  std::vector<std::string> wanted = {};               // float inputs
  std::optional<std::vector<std::string>> kept = {};  // inputs and outputs that the gradient gets; absent: all
  std::vector<std::string> inactive = {};             // buffers that pass no gradient, such as a softmax's maximum
  Tie tie = Tie::halves;
  SumOrder::Kind sums = SumOrder::loop;  // of sums over loops that an element of an adjoint gathers; tree: stmt.h
  std::optional<std::vector<std::string>> seeded = {};  // outputs whose adjoint is given, absent: all; others' are zero
  std::vector<Known> known = {};
};

class DerivationRefusal : public Refusal {
 public:
  explicit DerivationRefusal(const std::string& why) : Refusal(ErrorCode::unsupported, why) {}
};

// Throws DerivationRefusal, "differentiate: kernel NAME: why"; Error(invalid_argument) for a name that the kernel does
// not have, and for a kernel that is not authored.
Kernel differentiate(const Kernel& forward, const Derivation& how);

}  // namespace gradloom::ir

#pragma GCC visibility pop
