// x to a constant power: by a few products, quotients and roots where they have the bound, else exp(exponent * log|x|)
// with a logarithm of twice the float's precision.
#include <cmath>

#include "gradloom/math.h"
#include "ir/math_format.h"
#include "ir/scalar_math.h"

namespace gradloom::ir {
namespace {

// A sum of two floats, the second below the first one's rounding.
struct Pair {
  Expr high, low;
};

// log of a positive finite f64. log(1 + g) = 2 s (1 + z / 3 + z^2 / 5 + ...) with s = g / (2 + g) and z = s^2 <= 0.03.
Pair log_pair(KernelBuilder& b, const MathFormat& f, const Expr& x) {
  const auto number = [&](double v) { return f.number(v); };
  const auto minus = [](const Expr& e) { return unary(UnaryOp::neg, e); };
  const auto [k, g] = split_exponent(b, f, x, true);
  const Expr d = b.let("d", g + number(2));
  const Expr s = b.let("s", g / d);
  const Expr rest = fma(minus(s), d, g) - s * (g - (d - number(2)));
  const Expr s_rest = b.let("s_rest", rest / d);
  const Expr z = b.let("z", s * s), z_rest = b.let("z_rest", fma(s, s, minus(z)) + number(2) * s * s_rest);
  const Expr tail = horner(f, z,
                           {1.0 / 29, 1.0 / 27, 1.0 / 25, 1.0 / 23, 1.0 / 21, 1.0 / 19, 1.0 / 17, 1.0 / 15, 1.0 / 13,
                            1.0 / 11, 1.0 / 9, 1.0 / 7});
  // a + z * q, of a constant that is far larger than the product.
  const auto step = [&](Pair a, const Pair& q) {
    const Expr p = b.let("p", z * q.high);
    const Expr p_rest = fma(z, q.high, minus(p)) + (q.low ? fma(z, q.low, z_rest * q.high) : z_rest * q.high);
    const Expr high = b.let("sum", a.high + p);
    return Pair{high, b.let("sum_rest", ((a.high - high) + p) + (a.low + p_rest))};
  };
  const Pair fifth = step({number(0.2), number(-0x1.999999999999ap-57)}, {b.let("tail", tail), {}});
  const Pair third = step({number(1.0 / 3), number(0x1.5555555555555p-56)}, fifth);
  const Expr c = b.let("c", z * third.high);
  const Expr c_rest = fma(z, third.high, minus(c)) + fma(z, third.low, z_rest * third.high);
  const Expr u = b.let("u", number(2) * s), u_rest = number(2) * s_rest;
  const Expr v = b.let("v", u * c), v_rest = fma(u, c, minus(v)) + fma(u, c_rest, u_rest * c);
  const Expr l = b.let("l", u + v), l_rest = ((u - l) + v) + (u_rest + v_rest);
  const Expr whole = b.let("whole", k * number(6.93147180369123816490e-01));  // exact
  const Expr high = b.let("log", whole + l);
  return {high, b.let("log_rest", ((whole - high) + l) + fma(k, number(1.90821492927058770002e-10), l_rest))};
}

// A positive finite number to the power.
Expr positive_power(KernelBuilder& b, const MathFormat& f, const Expr& x, double exponent) {
  const MathFormat wide(DType::f64);
  const Expr y = wide.number(exponent);
  if (!f.wide) return cast(DType::f32, exp(b, y * log(b, cast(DType::f64, x))));
  const Pair log = log_pair(b, f, x);
  const Expr product = b.let("product", y * log.high);
  const Expr rest = fma(y, log.high, unary(UnaryOp::neg, product)) + y * log.low;
  const Expr in_range = absolute(product) < f.number(1000);
  return exp_of_sum(b, product, b.let("rest", select(in_range, rest, f.number(0))));
}

Expr general_power(KernelBuilder& b, const MathFormat& f, const Expr& x, double exponent) {
  const Expr infinity = f.number(HUGE_VAL), size = b.let("size", absolute(x));
  const Expr above = exponent > 0 ? infinity : f.number(0), below = exponent > 0 ? f.number(0) : infinity;
  const Expr value = std::isinf(exponent)
                         ? select(size > f.number(1), above, select(size < f.number(1), below, f.number(1)))
                         : positive_power(b, f, size, exponent);
  const Expr limits = select(size == infinity, above, select(size == f.number(0), below, value));
  const Expr power = b.let("power", select(size == size, limits, size));
  if (std::isinf(exponent) || std::fmod(exponent, 2) == 0) return power;
  if (std::abs(std::fmod(exponent, 2)) == 1) return with_sign(f, power, x);
  return select((x < f.number(0)) & (size < infinity), nan(f), power);
}

}  // namespace

Expr pow(KernelBuilder& b, Expr argument, double given) {
  const MathFormat f(argument.dtype());
  const double exponent = double_from_bits(f.dtype, bits_from_double(f.dtype, given));
  const Expr x = named(b, std::move(argument)), one = f.number(1);
  const auto result = [&](Expr value) { return b.let("pow", std::move(value)); };
  const auto square = [&](const Expr& e) {
    const Expr v = named(b, e);
    return v * v;
  };
  if (std::isnan(exponent)) return result(select(x == one, one, nan(f)));
  if (exponent == 0) return result(broadcast(one, x.lanes()));
  if (exponent == 1) return x;
  if (exponent == 2) return result(x * x);
  if (exponent == 3) return result(x * x * x);
  if (exponent == 4) return result(square(x * x));
  if (exponent == -1) return result(one / x);
  if (exponent == -2) return result(square(one / x));
  if (std::abs(exponent) != 0.5) return result(general_power(b, f, x, exponent));
  // +0 added: the root of -0 is 0, C's power of it, too.
  const Expr root = select(x == f.number(-HUGE_VAL), f.number(HUGE_VAL), unary(UnaryOp::sqrt, x + f.number(0)));
  return result(exponent > 0 ? root : one / root);
}

}  // namespace gradloom::ir
