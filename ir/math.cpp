#include "gradloom/math.h"

#include <cmath>

#include "ir/math_format.h"

namespace gradloom::ir {
namespace {

using Format = MathFormat;

// A NaN stays: both comparisons are false.
Expr clamp(KernelBuilder& b, const char* name, const Expr& x, const Expr& low, const Expr& high) {
  return b.let(name, select(x < low, low, select(x > high, high, x)));
}

// 2^n for an integer n whose power is a normal number.
Expr power_of_two(const Format& f, const Expr& n) {
  return bitcast(f.dtype, shift(BinaryOp::shl, n + f.integer(f.bias()), f.mantissa()));
}

// x = n ln2 + r with |r| <= ln2 / 2 (a bit more by rounding); p = e^r - 1. n is any integer where x is NaN.
struct Reduced {
  Expr n, p;
};
Reduced reduce(KernelBuilder& b, const Format& f, const Expr& x, const Expr& tail = {}) {
  // Adding 1.5 * 2^mantissa leaves the nearest integer in the low bits.
  const double magic = f.wide ? 6755399441055744.0 : 12582912.0;
  const Expr shifted = b.let("shifted", fma(x, f.number(1.4426950408889634), f.number(magic)));
  const Expr whole = b.let("whole", shifted - f.number(magic));
  const Expr high = fma(whole, f.pick(-0x1.62e4p-1, -0x1.62e42feep-1), x);
  const Expr near = fma(whole, f.pick(-0x1.7f7d1cp-20, -0x1.a39ef35793c76p-33), high);
  const Expr r = b.let("r", tail ? near + tail : near);
  const Expr q = f.wide ? horner(f, r,
                                 {1.0 / 6227020800, 1.0 / 479001600, 1.0 / 39916800, 1.0 / 3628800, 1.0 / 362880,
                                  1.0 / 40320, 1.0 / 5040, 1.0 / 720, 1.0 / 120, 1.0 / 24, 1.0 / 6, 0.5})
                        : horner(f, r,
                                 {1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1,
                                  5.0000001201e-1});
  const Expr n = b.let("n", bitcast(f.bits_dtype(), shifted) - bitcast(f.bits_dtype(), f.number(magic)));
  return {n, b.let("p", fma(q, r * r, r))};
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
  const Expr x = clamp(b, "x", named(b, std::move(argument)), f.pick(-104, -746), f.pick(89, 710));
  const Reduced e = reduce(b, f, x, tail);
  // 2^n in two factors: each is normal, and only the last product rounds.
  const Expr half = b.let("half", shift(BinaryOp::shr, e.n, 1));
  const Expr first = b.let("first", (e.p + f.number(1)) * power_of_two(f, half));
  return b.let("exp", first * power_of_two(f, e.n - half));
}

Expr expm1(KernelBuilder& b, Expr argument) {
  const Format f(argument.dtype());
  const Expr given = named(b, std::move(argument));
  const Expr x = clamp(b, "x", given, f.pick(-18, -38), f.pick(89, 710));
  const Reduced e = reduce(b, f, x);
  // p 2^n + (2^n - 1), at half size: 2^n itself may be too large.
  const Expr scale = b.let("scale", power_of_two(f, e.n - f.integer(1)));
  const Expr value = f.number(2) * fma(e.p, scale, scale - f.number(0.5));
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

Expr tanh(KernelBuilder& b, Expr argument) {
  const Format f(argument.dtype());
  const Expr x = named(b, std::move(argument));
  const Expr size = b.let("size", absolute(x));
  const Expr limit = f.pick(10, 22);  // beyond it the result rounds to 1
  const Expr t = expm1(b, f.number(2) * select(size > limit, limit, size));
  return b.let("tanh", with_sign(f, binary(BinaryOp::div, t, t + f.number(2)), x));
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

// Below 1 a polynomial in x^2, from there on 1 - exp(-r) with a polynomial in |x|: fitted by weighted least squares to
// erf(x) / x - 1 and to -log(1 - erf(x)) / x - 1.
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
                   {0.000078537766598019523138, -0.00080101679673924981819, 0.0051883247642637820051,
                    -0.026853810397266572381, 0.11283585111845465036, -0.37612625820995281373, 0.12837916572624279387});
  const Expr limit = f.pick(4, 6);  // beyond it the result rounds to 1
  const Expr far = b.let("far", select(size > limit, limit, size));
  const Expr q = f.wide ? horner(f, far,
                                 {8.5668752415443264705e-12, -3.4410561781419631929e-10, 6.4181416305925667859e-9,
                                  -7.3634792445032172209e-8, 5.7889300097799033216e-7, -3.2724205277057567325e-6,
                                  0.000013430311979093788902, -0.000038272152409634296337, 0.000059541084689080299721,
                                  0.000056350262752119072673, -0.00064631823273381063424, 0.0017619726937005921474,
                                  -0.00026294611887482649142, -0.019097600302666089013, 0.10276067454551673095,
                                  0.63662257458969476246, 0.12837886433131637903})
                        : horner(f, far,
                                 {3.6421909508782983877e-6, -0.000029494479539594540009, -0.0001332351940544323735,
                                  0.0031664248909638066245, -0.023065782877740110492, 0.10564388545741232128,
                                  0.63542344839526887503, 0.12859662221148117099});
  const Expr rest = exp(b, unary(UnaryOp::neg, fma(q, far, far)));
  const Expr inner = fma(near, x, x), outer = with_sign(f, f.number(1) - rest, x);
  return b.let("erf", select(size < f.number(1), inner, outer));
}

}  // namespace gradloom::ir
