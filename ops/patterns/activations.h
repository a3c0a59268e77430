#pragma once
// The activation functions of ONNX's recurrent operators, by name, and their derivatives.
#include <optional>
#include <string>
#include <string_view>

#include "gradloom/builder.h"

namespace gradloom {

struct Activation {
  enum class Kind : uint8_t {
    affine,
    relu,
    leaky_relu,
    thresholded_relu,
    tanh,
    scaled_tanh,
    sigmoid,
    hard_sigmoid,
    elu,
    softsign,
    softplus
  };
  Kind kind = Kind::sigmoid;
  double alpha = 0, beta = 0;  // 0 where the function has none
  bool operator==(const Activation&) const = default;
  template <class Key, class Visit>
  static void fields(Key& key, Visit&& visit) {
    visit(key.kind, key.alpha, key.beta);
  }
};

// Which of its parameters a function has, and their defaults (those of the ONNX operator of that name; absent: it must
// be given).
struct ActivationInfo {
  const char* name;  // ONNX's
  Activation::Kind kind;
  bool has_alpha = false, has_beta = false;
  std::optional<double> alpha, beta;
};
const ActivationInfo* find_activation(std::string_view name);  // in any case; nullptr when there is none
const ActivationInfo& info_of(Activation::Kind kind);
std::string activation_names();  // "Affine, Relu, ...", for messages

// f(x) in x's dtype, f32 or f64.
ir::Expr activate(ir::KernelBuilder& b, const Activation& f, ir::Expr x);
// Whether f'(x) cannot be computed from f(x) alone.
bool derivative_needs_input(const Activation& f);
// f'(x) from y = f(x); x where derivative_needs_input (else it may be absent). 0 at kinks, NaN where y is.
ir::Expr derivative(ir::KernelBuilder& b, const Activation& f, ir::Expr y, ir::Expr x);

}  // namespace gradloom
