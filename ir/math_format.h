#pragma once
// What the formulas of elementary functions share.
#include <initializer_list>
#include <span>
#include <string>

#include "gradloom/builder.h"

namespace gradloom::ir {

// Constants of the formulas for f32 or f64.
struct MathFormat {
  explicit MathFormat(DType t) : dtype(t), wide(t == DType::f64) {
    if (!is_arithmetic_float(t))
      throw Error(ErrorCode::invalid_argument,
                  std::string("elementary functions take f32 or f64, got ") + to_string(t));
  }
  DType dtype;
  bool wide;
  DType bits_dtype() const { return wide ? DType::i64 : DType::i32; }
  int mantissa() const { return info_of(dtype).mantissa_bits; }
  int64_t bias() const { return info_of(dtype).exponent_bias(); }
  Expr number(double value) const { return constant(dtype, value); }
  Expr pick(double f32, double f64) const { return number(wide ? f64 : f32); }
  Expr integer(int64_t value) const { return constant_int(bits_dtype(), value); }
};

inline Expr shift(BinaryOp op, Expr a, int count) {
  const DType t = a.dtype();
  return binary(op, std::move(a), constant_int(t, count));
}
inline Expr absolute(Expr x) { return unary(UnaryOp::abs, std::move(x)); }

// Horner's scheme, highest power first.
inline Expr horner(const MathFormat& f, const Expr& x, std::span<const double> coefficients) {
  Expr sum;
  for (const double c : coefficients) sum = sum ? fma(sum, x, f.number(c)) : f.number(c);
  return sum;
}
inline Expr horner(const MathFormat& f, const Expr& x, std::initializer_list<double> coefficients) {
  return horner(f, x, std::span(coefficients.begin(), coefficients.size()));
}

inline Expr nan(const MathFormat& f) {
  return f.wide ? constant_bits(DType::f64, 0x7ff8000000000000) : constant_bits(DType::f32, 0x7fc00000);
}

// `magnitude` with the sign of x, NaN as it is.
inline Expr with_sign(const MathFormat& f, const Expr& magnitude, const Expr& x) {
  const Expr sign = bitcast(f.bits_dtype(), x) & f.integer(f.wide ? INT64_MIN : INT32_MIN);
  return bitcast(f.dtype, bitcast(f.bits_dtype(), magnitude) | sign);
}

inline Expr named(KernelBuilder& b, Expr x) { return x.as<Var>() || x.as<Const>() ? x : b.let("x", std::move(x)); }

// A positive number, as 2^k (1 + g) with 1 + g in [sqrt(1/2), sqrt(2)]; `denormal`: it may be one.
struct ExponentSplit {
  Expr k, g;
};
ExponentSplit split_exponent(KernelBuilder& b, const MathFormat& f, const Expr& x, bool denormal);

// exp(x + tail), the tail far smaller than 1; absent: 0.
Expr exp_of_sum(KernelBuilder& b, Expr x, const Expr& tail);

}  // namespace gradloom::ir
