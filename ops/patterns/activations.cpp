#include "ops/patterns/activations.h"

#include <algorithm>
#include <cmath>

#include "gradloom/math.h"

namespace gradloom {
namespace {

using ir::Expr;
using Kind = Activation::Kind;

// In the order of Kind.
const ActivationInfo infos[] = {
    {"Affine", Kind::affine, true, true, 1.0, 0.0},
    {"Relu", Kind::relu},
    {"LeakyRelu", Kind::leaky_relu, true, false, 0.01, {}},
    {"ThresholdedRelu", Kind::thresholded_relu, true, false, 1.0, {}},
    {"Tanh", Kind::tanh},
    {"ScaledTanh", Kind::scaled_tanh, true, true, {}, {}},
    {"Sigmoid", Kind::sigmoid},
    {"HardSigmoid", Kind::hard_sigmoid, true, true, 0.2, 0.5},
    {"Elu", Kind::elu, true, false, 1.0, {}},
    {"Softsign", Kind::softsign},
    {"Softplus", Kind::softplus},
};

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

// The value of each sign of y; `zero` at 0, y itself where it is NaN.
Expr by_sign(const Expr& y, const Expr& positive, const Expr& negative, const Expr& zero) {
  const Expr nought = ir::zero(y.type());
  return ir::select(y > nought, positive, ir::select(y < nought, negative, ir::select(y == nought, zero, y)));
}

}  // namespace

const ActivationInfo* find_activation(std::string_view name) {
  for (const ActivationInfo& info : infos)
    if (std::equal(name.begin(), name.end(), info.name, info.name + std::char_traits<char>::length(info.name),
                   [](char a, char b) { return lower(a) == lower(b); }))
      return &info;
  return nullptr;
}

const ActivationInfo& info_of(Kind kind) { return infos[static_cast<int>(kind)]; }

std::string activation_names() {
  std::string names;
  for (const ActivationInfo& info : infos) names += (names.empty() ? "" : ", ") + std::string(info.name);
  return names;
}

Expr activate(ir::KernelBuilder& b, const Activation& f, Expr argument) {
  const DType t = argument.dtype();
  const auto number = [t](double v) { return ir::constant(t, v); };
  const Expr x = b.let("x", std::move(argument)), zero = number(0), one = number(1), alpha = number(f.alpha),
             beta = number(f.beta);
  // Selects are written so that a NaN passes through.
  switch (f.kind) {
    case Kind::affine:
      return ir::fma(alpha, x, beta);
    case Kind::relu:
      return ir::select(x < zero, zero, x);
    case Kind::leaky_relu:
      return ir::select(x < zero, alpha * x, x);
    case Kind::thresholded_relu:
      return ir::select(x <= alpha, zero, x);
    case Kind::tanh:
      return ir::tanh(b, x);
    case Kind::scaled_tanh:
      return alpha * ir::tanh(b, beta * x);
    case Kind::sigmoid:
      return ir::logistic(b, x);
    case Kind::hard_sigmoid: {
      const Expr line = b.let("line", ir::fma(alpha, x, beta));
      return ir::select(line < zero, zero, ir::select(line > one, one, line));
    }
    case Kind::elu: {
      const Expr curve = ir::expm1(b, x);
      return ir::select(x < zero, alpha * curve, x);
    }
    case Kind::softsign: {
      const Expr size = b.let("size", ir::unary(ir::UnaryOp::abs, x));
      const Expr huge = size > number(t == DType::f64 ? 0x1p1000 : 0x1p120);
      return ir::binary(ir::BinaryOp::div, ir::select(huge, ir::select(x < zero, number(-1), one), x),
                        ir::select(huge, one, one + size));
    }
    case Kind::softplus:
      return ir::softplus(b, x);
  }
  throw Error(ErrorCode::internal, "no such activation");
}

bool derivative_needs_input(const Activation& f) { return f.kind == Kind::thresholded_relu && f.alpha < 0; }

Expr derivative(ir::KernelBuilder& b, const Activation& f, Expr output, Expr x) {
  const DType t = output.dtype();
  const auto number = [t](double v) { return ir::constant(t, v); };
  const Expr y = b.let("y", std::move(output)), zero = number(0), one = number(1), alpha = number(f.alpha);
  switch (f.kind) {
    case Kind::affine:
      return alpha;
    case Kind::relu:
      return by_sign(y, one, zero, zero);
    case Kind::leaky_relu:
      return by_sign(y, one, alpha, f.alpha == 1 ? one : zero);
    case Kind::thresholded_relu:
      if (!derivative_needs_input(f)) return by_sign(y, one, zero, zero);
      return ir::select(x > alpha, one, ir::select(x <= alpha, zero, x));
    case Kind::tanh:
      return ir::fma(ir::unary(ir::UnaryOp::neg, y), y, one);
    case Kind::scaled_tanh: {
      if (f.alpha == 0) return zero;
      const Expr unscaled = b.let("unscaled", ir::binary(ir::BinaryOp::div, y, alpha));
      return number(f.alpha * f.beta) * ir::fma(ir::unary(ir::UnaryOp::neg, unscaled), unscaled, one);
    }
    case Kind::sigmoid:
      return y * (one - y);
    case Kind::hard_sigmoid:
      return ir::select((y > zero) & (y < one), alpha, ir::select(y == y, zero, y));
    case Kind::elu:
      return by_sign(y, one, y + alpha, f.alpha == 1 ? one : zero);
    case Kind::softsign: {
      const Expr rest = b.let("rest", one - ir::unary(ir::UnaryOp::abs, y));
      return rest * rest;
    }
    case Kind::softplus:
      return ir::unary(ir::UnaryOp::neg, ir::expm1(b, ir::unary(ir::UnaryOp::neg, y)));
  }
  throw Error(ErrorCode::internal, "no such activation");
}

}  // namespace gradloom
