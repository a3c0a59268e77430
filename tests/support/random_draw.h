#pragma once
// Draws from an engine shared by the parts of a generator.
#include <cstdint>
#include <random>
#include <vector>

#include "gradloom/expr.h"

namespace gradloom::ir::testing {

class RandomDraw {
 protected:
  explicit RandomDraw(std::mt19937_64& random) : random_(random) {}
  int pick(int n) { return static_cast<int>(random_() % static_cast<uint64_t>(n)); }
  bool chance(int percent) { return pick(100) < percent; }
  template <class T>
  const T& any(const std::vector<T>& list) {
    return list[pick(static_cast<int>(list.size()))];
  }

  // A floating-point operation on operands from `operand()`, selected by `what` in 0 .. 99.
  template <class Operand>
  Expr float_operation(int what, const Operand& operand) {
    static const std::vector<BinaryOp> two{BinaryOp::add, BinaryOp::sub, BinaryOp::mul,
                                           BinaryOp::div, BinaryOp::min, BinaryOp::max};
    static const std::vector<UnaryOp> one{UnaryOp::neg,   UnaryOp::abs,  UnaryOp::sqrt,
                                          UnaryOp::floor, UnaryOp::ceil, UnaryOp::trunc};
    if (what < 35) return fma(operand(), operand(), operand());
    return what < 50 ? unary(any(one), operand()) : binary(any(two), operand(), operand());
  }

  std::mt19937_64& random_;
};

}  // namespace gradloom::ir::testing
