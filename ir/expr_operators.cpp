// Numbers as operands of expressions, and !.
#include <charconv>
#include <cmath>

#include "gradloom/expr.h"
#include "ir/scalar_math.h"
#include "support/float_mode.h"

namespace gradloom::ir {
namespace {

[[noreturn]] void no_number(DType dtype, const std::string& number) {
  throw Error(ErrorCode::invalid_argument, "ir: " + std::string(to_string(dtype)) + " has no " + number);
}

}  // namespace

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
