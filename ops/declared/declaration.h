#pragma once
// An op declared by its forward nest. From it come the forward op and the op of its gradient.
#include <functional>
#include <string>
#include <vector>

#include "gradloom/differentiate.h"
#include "gradloom/op.h"

namespace gradloom {

class DeclaredNest;

// A call's dims are those of its first operand that has all of them. The reduced ones: none; that which the attribute
// `axis` names; that and all after it; dim 1.
enum class Reduced : uint8_t { none, axis, from_axis, second };

// The dims that an operand has: all; those that are not reduced, the others left out or 1; the reduced ones; none.
enum class Over : uint8_t { all, kept, kept_ones, reduced, one };

struct DeclaredOperand {
  std::string name = {}, doc = {};
  Over over = Over::all;
  std::string type = "T";          // operands of one type have one dtype in a call
  std::vector<DType> dtypes = {};  // none: all floats
  bool optional = false;
  // Of a loss: its dims where this attribute has that value, instead of `over`.
  struct {
    std::string attribute = {}, value = {};
    Over over = Over::all;
  } where = {};
};

// An operand of the gradient op: a forward operand, or the adjoint "d_Y" of one.
struct GradientOperand {
  std::string name = {}, of = {}, doc = {};
};

struct Declaration {
  std::string name = {}, doc = {};  // of the forward op
  std::vector<DeclaredOperand> inputs = {}, outputs = {};
  // Each has a default, or means something else when it is absent. Strings are `choices`, the default first.
  std::vector<AttributeSchema> attributes = {};
  std::vector<std::string> choices = {};
  Reduced reduced = Reduced::none;
  std::string indices = {};                // an input that the nest checks to be indices along dim 1
  void (*write)(DeclaredNest&) = nullptr;  // the forward nest

  struct {
    std::string name = {}, doc = {};
    // In ORT's order. The forward operands among the inputs are what is kept; the adjoints among the outputs, which a
    // call may leave out, what is derived.
    std::vector<GradientOperand> inputs = {}, outputs = {};
    std::vector<std::string> attributes = {};  // which of the forward op's it has; of others, the default
    std::vector<std::string> inactive = {};    // buffers of the nest that pass no gradient
    ir::Tie tie = ir::Tie::halves;
  } gradient = {};
};

}  // namespace gradloom
