// The operators of expressions that authors write. They fold what is known from constants alone, so that a nest reads
// as it was meant where shapes are specialised; the constructors that they call keep every node as it is given.
#include <charconv>
#include <cmath>

#include "gradloom/expr.h"
#include "ir/scalar_math.h"
#include "support/float_mode.h"

namespace gradloom::ir {
namespace {

bool is_zero(const Expr& e) { return is_const(e, 0); }
bool is_one(const Expr& e) { return is_const(e, 1); }

// Of equal types.
Expr fold(BinaryOp op, const Expr& a, const Expr& b) {
  const Const *x = a.as<Const>(), *y = b.as<Const>();
  if (x && y && is_defined(op, a.dtype(), y->bits)) {
    const FloatMode mode;
    return constant_bits(a.dtype(), eval_binary(op, a.dtype(), x->bits, y->bits));
  }
  if (is_zero(b) && (op == BinaryOp::add || op == BinaryOp::sub)) return a;
  if (is_zero(a) && op == BinaryOp::add) return b;
  if (is_one(b) && op == BinaryOp::mul) return a;
  if (is_one(a) && op == BinaryOp::mul) return b;
  return {};
}

Expr operation(BinaryOp op, Expr a, Expr b) {
  if (!a.as<Const>() && !b.as<Const>()) return binary(op, std::move(a), std::move(b));
  Expr whole = binary(op, a, b);  // checks the operands
  Expr folded = a.type() == b.type() ? fold(op, a, b) : Expr();
  return folded ? folded : whole;
}

[[noreturn]] void no_number(DType dtype, const std::string& number) {
  throw Error(ErrorCode::invalid_argument, "ir: " + std::string(to_string(dtype)) + " has no " + number);
}

}  // namespace

Expr operator+(Expr a, Expr b) { return operation(BinaryOp::add, std::move(a), std::move(b)); }
Expr operator-(Expr a, Expr b) { return operation(BinaryOp::sub, std::move(a), std::move(b)); }
Expr operator*(Expr a, Expr b) { return operation(BinaryOp::mul, std::move(a), std::move(b)); }
Expr operator/(Expr a, Expr b) { return operation(BinaryOp::div, std::move(a), std::move(b)); }
Expr floor_div(Expr a, Expr b) { return operation(BinaryOp::floor_div, std::move(a), std::move(b)); }
Expr floor_mod(Expr a, Expr b) { return operation(BinaryOp::floor_mod, std::move(a), std::move(b)); }
Expr min(Expr a, Expr b) { return operation(BinaryOp::min, std::move(a), std::move(b)); }
Expr max(Expr a, Expr b) { return operation(BinaryOp::max, std::move(a), std::move(b)); }

Expr operator-(Expr a) {
  Expr whole = unary(UnaryOp::neg, a);
  const Const* c = a.as<Const>();
  return c ? constant_bits(a.dtype(), eval_unary(UnaryOp::neg, a.dtype(), c->bits)) : whole;
}

Not::operator Expr() && {
  if (dtype_of(e_) != DType::boolean)
    throw Error(ErrorCode::invalid_argument, "ir: ! takes a bool, got " + to_string(e_.type()));
  return unary(UnaryOp::bit_not, e_);
}

DType dtype_of(const Expr& e) {
  if (!e) throw Error(ErrorCode::invalid_argument, "ir: an operand is absent");
  return e.dtype();
}

Expr number_like(DType dtype, bool value) {
  if (dtype != DType::boolean) no_number(dtype, value ? "true" : "false");
  return constant_bits(dtype, value);
}
Expr number_like(DType dtype, int64_t value) {
  if (value >= 0) return number_like(dtype, static_cast<uint64_t>(value));
  Expr e = constant_int(dtype, value);
  if (!is_float(dtype) && (!is_signed_int(dtype) || !is_const(e, value))) no_number(dtype, std::to_string(value));
  return e;
}
Expr number_like(DType dtype, uint64_t value) {
  const FloatMode mode;
  Expr e = constant_bits(dtype, eval_cast(DType::u64, dtype, value));
  const bool there =
      dtype == DType::u64 || is_float(dtype) || (value <= INT64_MAX && is_const(e, static_cast<int64_t>(value)));
  if (!there) no_number(dtype, std::to_string(value));
  return e;
}
Expr number_like(DType dtype, double value) {
  const Expr e = constant(dtype, value);
  const bool there =
      is_float(dtype) && (!std::isfinite(value) || std::isfinite(double_from_bits(dtype, e.as<Const>()->bits)));
  if (!there) {
    char text[32];
    const auto [end, error] = std::to_chars(text, text + sizeof text, value);
    no_number(dtype, std::string(text, end));
  }
  return e;
}

}  // namespace gradloom::ir
