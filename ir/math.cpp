#include "gradloom/math.h"

#include <cmath>
#include <vector>

#include "ir/math_format.h"

namespace gradloom::ir {
namespace {

using Format = MathFormat;

// Squares and magnitudes; or NaN.
bool is_never_negative(const Expr& e) {
  if (const auto* u = e.as<Unary>()) return u->op == UnaryOp::abs;
  const auto* product = e.as<Binary>();
  return product && product->op == BinaryOp::mul && equal(product->a, product->b);
}

// A NaN stays: both comparisons are false.
Expr clamp(KernelBuilder& b, const char* name, const Expr& x, const Expr& low, const Expr& high) {
  return b.let(name, select(x < low, low, select(x > high, high, x)));
}

// An argument of exp, `times` x, where exp is neither 0 nor infinite. Of -y it is y, -1 times: no operation negates it.
struct Exponent {
  Expr x;
  double times;
  bool never_positive;  // by its form
};
Exponent clamp_exponent(KernelBuilder& b, const Format& f, const Expr& given) {
  const double low = f.wide ? -746 : -104, high = f.wide ? 710 : 89;
  const auto* minus = given.as<Unary>();
  if (!minus || minus->op != UnaryOp::neg)
    return {clamp(b, "x", named(b, given), f.number(low), f.number(high)), 1, false};
  const bool never_positive = is_never_negative(minus->a);
  const Expr y = named(b, minus->a), limit = f.number(-low);
  if (never_positive) return {b.let("y", select(y > limit, limit, y)), -1, true};
  return {clamp(b, "y", y, f.number(-high), limit), -1, false};
}

// t x = n ln2 + t r with |t r| <= ln2 / 2 (a bit more by rounding). n stands in the low bits of `bits`, whose other
// bits a shift by a float's mantissa discards; it is any integer where x is NaN.
struct Reduced {
  Expr bits, r;
};
Reduced reduce(KernelBuilder& b, const Format& f, const Expr& x, double t, const Expr& tail = {}) {
  // Adding 1.5 * 2^mantissa leaves the nearest integer in the low bits.
  const double magic = f.wide ? 6755399441055744.0 : 12582912.0;
  const Expr shifted = b.let("shifted", fma(x, f.number(t * 1.4426950408889634), f.number(magic)));
  const Expr whole = b.let("whole", shifted - f.number(magic));
  const Expr high = fma(whole, f.pick(-0x1.62e4p-1 / t, -0x1.62e42feep-1 / t), x);
  const Expr near = fma(whole, f.pick(-0x1.7f7d1cp-20 / t, -0x1.a39ef35793c76p-33 / t), high);
  return {b.let("n", bitcast(f.bits_dtype(), shifted)), b.let("r", tail ? near + tail : near)};
}

// 2^(n + by) for n in the low bits, where that is a normal number.
Expr power_of_two(const Format& f, const Expr& bits, int64_t by = 0) {
  return bitcast(f.dtype, shift(BinaryOp::shl, bits, f.mantissa()) + f.integer((f.bias() + by) << f.mantissa()));
}

// (e^(t r) - 1 - t r) / (d r^2); t and d are powers of two, or negative ones.
Expr exp_series(const Format& f, const Expr& r, double t, double d) {
  const std::initializer_list<double> f32{1.39464957394e-3, 8.36661059675e-3, 4.16662814178e-2, 1.6666542794e-1, 0.5};
  const std::initializer_list<double> f64{1.0 / 6227020800, 1.0 / 479001600, 1.0 / 39916800, 1.0 / 3628800,
                                          1.0 / 362880,     1.0 / 40320,     1.0 / 5040,     1.0 / 720,
                                          1.0 / 120,        1.0 / 24,        1.0 / 6,        0.5};
  std::vector<double> coefficients(f.wide ? f64 : f32);
  double factor = t * t / d;
  for (auto c = coefficients.rbegin(); c != coefficients.rend(); ++c, factor *= t) *c *= factor;
  return horner(f, r, coefficients);
}

// (e^(t r) - 1) / t, rounded in proportion to r.
Expr expm1_of(KernelBuilder& b, const Format& f, const Expr& r, double t) {
  return b.let("p", fma(exp_series(f, r, t, t), r * r, r));
}

// log(1 + g) for 1 + g in [sqrt(1/2), sqrt(2)], as g minus what is returned, with s = g / (2 + g).
Expr log_series(const Format& f, const Expr& s2) {
  return f.wide ? horner(f, s2,
                         {1.479819860511658591e-01, 1.531383769920937332e-01, 1.818357216161805012e-01,
                          2.222219843214978396e-01, 2.857142874366239149e-01, 3.999999999940941908e-01,
                          6.666666666666735130e-01})
                : horner(f, s2, {0.24279078841, 0.28498786688, 0.40000972152, 0.66666662693});
}

}  // namespace

ExponentSplit split_exponent(KernelBuilder& b, const Format& f, const Expr& x, bool denormal) {
  const int64_t lift = f.wide ? 54 : 25;
  Expr normal = x, lifted;
  if (denormal) {
    lifted = b.let("lifted", x < f.pick(0x1p-126, 0x1p-1022));
    normal = b.let("normal", select(lifted, x * f.pick(0x1p25, 0x1p54), x));
  }
  // The exponent counts from sqrt(1/2), so that the mantissa lies around 1.
  const int64_t half_root = f.wide ? 0x3fe6a09e667f3bcd : 0x3f3504f3, one = f.bias() << f.mantissa();
  const Expr bits = b.let("bits", bitcast(f.bits_dtype(), normal) + f.integer(one - half_root));
  Expr exponent = shift(BinaryOp::shr, bits, f.mantissa()) - f.integer(f.bias());
  if (denormal) exponent = exponent - select(lifted, f.integer(lift), f.integer(0));
  Expr k = b.let("k", cast(f.dtype, exponent));
  const Expr low_bits = bits & f.integer((int64_t{1} << f.mantissa()) - 1);
  return {k, b.let("g", bitcast(f.dtype, low_bits + f.integer(half_root)) - f.number(1))};
}

namespace {

// log of a positive number, infinity included; `denormal`: it may be one.
Expr log_positive(KernelBuilder& b, const Format& f, const Expr& x, bool denormal) {
  const auto [k, g] = split_exponent(b, f, x, denormal);
  const Expr s = b.let("s", binary(BinaryOp::div, g, g + f.number(2)));
  const Expr s2 = b.let("s2", s * s);
  const Expr half_square = b.let("half_square", f.number(0.5) * g * g);
  const Expr series =
      fma(s, fma(log_series(f, s2), s2, half_square), k * f.pick(9.0580006145e-06, 1.90821492927058770002e-10));
  const Expr value = fma(k, f.pick(6.9313812256e-01, 6.93147180369123816490e-01), (series - half_square) + g);
  return select(x == f.number(HUGE_VAL), x, value);
}

// log(1 + x), right also where 1 + x rounds: log(u) + (x - (u - 1)) / u.
Expr log1p_of(KernelBuilder& b, const Format& f, const Expr& x) {
  const Expr u = b.let("u", x + f.number(1));
  const Expr rest = b.let("rest", binary(BinaryOp::div, x - (u - f.number(1)), u));
  const Expr value = b.let("value", log_positive(b, f, u, false));
  return select(u == f.number(HUGE_VAL), u, value + rest);
}

}  // namespace

Expr exp(KernelBuilder& b, Expr argument) { return exp_of_sum(b, std::move(argument), {}); }

Expr exp_of_sum(KernelBuilder& b, Expr argument, const Expr& tail) {
  const Format f(argument.dtype());
  // With a tail its sign stays.
  const auto [x, t, never_positive] = clamp_exponent(b, f, tail ? named(b, argument) : argument);
  const auto [n, r] = reduce(b, f, x, t, tail);
  const Expr power = b.let("power", fma(fma(exp_series(f, r, t, 1), r, f.number(t)), r, f.number(1)));
  // 2^n in two factors: each is normal, and only the last product rounds. A NaN stays, whatever they are.
  if (never_positive) {
    const int lift = f.wide ? 512 : 64;
    return b.let("exp", power * power_of_two(f, n, lift) * f.number(std::ldexp(1.0, -lift)));
  }
  const Expr half = b.let("half", shift(BinaryOp::shr, n, 1));
  const Expr first = b.let("first", power * power_of_two(f, half));
  return b.let("exp", first * power_of_two(f, n - half));
}

Expr expm1(KernelBuilder& b, Expr argument) {
  const Format f(argument.dtype());
  const Expr given = named(b, std::move(argument));
  const Expr x = clamp(b, "x", given, f.pick(-18, -38), f.pick(89, 710));
  const auto [n, r] = reduce(b, f, x, 1);
  const Expr p = expm1_of(b, f, r, 1);
  // p 2^n + (2^n - 1), at half size: 2^n itself may be too large.
  const Expr scale = b.let("scale", power_of_two(f, n, -1));
  const Expr value = f.number(2) * fma(p, scale, scale - f.number(0.5));
  const Expr tiny = absolute(given) < f.pick(0x1p-60, 0x1p-120);  // where half of p would lose bits, and -0
  return b.let("expm1", select(tiny, given, value));
}

Expr log(KernelBuilder& b, Expr argument) {
  const Format f(argument.dtype());
  const Expr x = named(b, std::move(argument));
  const Expr value = b.let("value", log_positive(b, f, x, true));
  return b.let("log", select(x > f.number(0), value, select(x == f.number(0), f.number(-HUGE_VAL), nan(f))));
}

Expr log1p(KernelBuilder& b, Expr argument) {
  const Format f(argument.dtype());
  const Expr x = named(b, std::move(argument));
  const Expr value = b.let("value", log1p_of(b, f, x));
  const Expr tiny = absolute(x) < f.pick(0x1p-60, 0x1p-120);
  return b.let(
      "log1p",
      select(tiny, x, select(x > f.number(-1), value, select(x == f.number(-1), f.number(-HUGE_VAL), nan(f)))));
}

// With t = (exp(2 |x|) - 1) / 2: t / (t + 1).
Expr tanh(KernelBuilder& b, Expr argument) {
  const Format f(argument.dtype());
  const Expr x = named(b, std::move(argument));
  const Expr size = b.let("size", absolute(x));
  const Expr limit = f.pick(10, 22);  // beyond it the result rounds to 1
  const auto [n, r] = reduce(b, f, b.let("x", select(size > limit, limit, size)), 2);
  const Expr p = expm1_of(b, f, r, 2), scale = b.let("scale", power_of_two(f, n));
  const Expr t = b.let("t", fma(p, scale, fma(scale, f.number(0.5), f.number(-0.5))));
  return b.let("tanh", with_sign(f, binary(BinaryOp::div, t, t + f.number(1)), x));
}

Expr logistic(KernelBuilder& b, Expr argument) {
  const Format f(argument.dtype());
  const Expr x = named(b, std::move(argument));
  const Expr e = exp(b, unary(UnaryOp::neg, absolute(x)));
  return b.let("logistic", binary(BinaryOp::div, select(x < f.number(0), e, f.number(1)), e + f.number(1)));
}

Expr softplus(KernelBuilder& b, Expr argument) {
  const Format f(argument.dtype());
  const Expr x = named(b, std::move(argument));
  const Expr e = exp(b, unary(UnaryOp::neg, absolute(x)));
  const Expr correction = b.let("correction", log1p_of(b, f, e));
  return b.let("softplus", select(x < f.number(0), f.number(0), x) + correction);
}

// Near 0 a polynomial in x^2, from there on 1 - exp(-x^2) times a polynomial in |x|: fitted to erf(x) / x - 1 and to
// exp(x^2) (1 - erf(x)), for the least error in proportion to erf(x). The exponential is written as the derivative has
// it, so that a gradient computes it once.
Expr erf(KernelBuilder& b, Expr argument) {
  const Format f(argument.dtype());
  const Expr x = named(b, std::move(argument));
  const Expr size = b.let("size", absolute(x)), square = b.let("square", x * x);
  const Expr near =
      f.wide
          ? horner(f, square,
                   {5.9452368215937261333e-11, -1.1365650940717767779e-9, 1.4657875882206344174e-8,
                    -1.6350024622952008901e-7, 1.6460972759431710943e-6, -0.000014925593503236448117,
                    0.00012055331036744917422, -0.00085483269787378885996, 0.005223977624780790261,
                    -0.026866170645072886882, 0.11283791670954857449, -0.37612638903183747603, 0.12837916709551257375})
          : horner(f, square,
                   {-0.000600297813723, 0.00499566888338, -0.0267684372178, 0.112818728723, -0.376125006009,
                    0.128379151754});
  const Expr limit = f.pick(4, 6);  // beyond it the result rounds to 1
  // Around the interval's middle the polynomial's terms are small, and so is their rounding.
  const Expr from_middle = b.let("from_middle", select(size > limit, limit, size) - f.pick(2, 2.5));
  const Expr q = f.wide ? horner(f, from_middle,
                                 {-6.3610159342804208838e-12,  1.6458275371211569589e-11, 2.9815710791864793001e-12,
                                  1.901405779831701295e-10,    -1.1183052025136741905e-9, 3.6985656361135353926e-9,
                                  -1.5630217866026855754e-8,   6.7690331120875357762e-8,  -2.7347607584154759247e-7,
                                  1.0843195399144286979e-6,    -4.214240468349403629e-6,  0.000015962483472052802743,
                                  -0.000058868761883342427007, 0.00021101965950525269937, -0.00073359103488095407312,
                                  0.0024670368218151023401,    -0.0080015693701894384601, 0.024937997087934294438,
                                  -0.07434734679003502555,     0.21080636406111995315})
                        : horner(f, from_middle,
                                 {-0.000470049403876, 0.000425910771299, -0.00157933832115, 0.00570391445854,
                                  -0.0154449903838, 0.0417569083706, -0.106806612799, 0.255395861706});
  const Expr rest = exp(b, unary(UnaryOp::neg, x * x));
  const Expr inner = fma(near, x, x), outer = with_sign(f, fma(unary(UnaryOp::neg, q), rest, f.number(1)), x);
  return b.let("erf", select(size < f.pick(0.92, 1), inner, outer));
}

}  // namespace gradloom::ir
