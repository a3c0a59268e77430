// sin and cos: an argument beyond pi / 4 is multiplied, as an integer, by the bits of 2 / pi that matter at its
// exponent, so that the reduction is exact for all of them (Payne and Hanek, 1983). Integers of a float's own width.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <vector>

#include "gradloom/math.h"
#include "ir/math_format.h"

namespace gradloom::ir {
namespace {

// The fraction's bits of 2 / pi.
constexpr uint64_t two_over_pi[] = {0xa2f9836e4e441529, 0xfc2757d1f534ddc0, 0xdb6295993c439041, 0xfe5163abdebbc561,
                                    0xb7246e3a424dd2e0, 0x06492eea09d1921c, 0xfe1deb1cb129a73e, 0xe88235f52ebb4484,
                                    0xe99c7026b45f7e41, 0x3991d639835339f4, 0x9c845f8bbdf9283b, 0x1ff897ffde05980f,
                                    0xef2f118b5a0a6d1f, 0x6d367ecf27cb09b7, 0x4f463f669e5fea2d, 0x7527bac7ebe5f17b,
                                    0x3d0739f78a5292ea, 0x6bfb5fb11f8d5d08};

// Unsigned integers of a float's width.
class Words {
 public:
  Words(KernelBuilder& b, const MathFormat& f)
      : b_(b), dtype(f.wide ? DType::u64 : DType::u32), width(f.wide ? 64 : 32) {}

  Expr number(uint64_t value) const { return constant_bits(dtype, value); }
  Expr let(const char* name, Expr value) const { return b_.let(name, std::move(value)); }
  Expr shl(const Expr& a, int n) const { return shift(BinaryOp::shl, a, n); }
  Expr shr(const Expr& a, int n) const { return shift(BinaryOp::shr, a, n); }
  Expr inverted(const Expr& a, uint64_t bits) const { return binary(BinaryOp::bit_xor, a, number(bits)); }
  Expr one_where(const Expr& condition) const { return select(condition, number(1), number(0)); }
  // The upper half of a * m.
  Expr high(const Expr& a, const Expr& m) const {
    if (width == 32)
      return let("high", cast(DType::u32, shift(BinaryOp::shr, cast(DType::u64, a) * cast(DType::u64, m), 32)));
    const auto lower = [&](const Expr& x) { return let("lower", x & number(0xffffffff)); };
    const Expr a0 = lower(a), a1 = let("upper", shr(a, 32)), m0 = lower(m), m1 = let("upper", shr(m, 32));
    const Expr left = let("left", a1 * m0), right = let("right", a0 * m1);
    const Expr middle = shr(a0 * m0, 32) + (left & number(0xffffffff)) + (right & number(0xffffffff));
    return let("high", a1 * m1 + shr(left, 32) + shr(right, 32) + shr(middle, 32));
  }

 private:
  KernelBuilder& b_;

 public:
  const DType dtype;
  const int width;
};

// Four words of 2 / pi, from word `at` of it with two words of zeros before: a multiplexer, as all lanes take another.
std::array<Expr, 4> window(const Words& w, const Expr& at) {
  std::vector<Expr> words(2, w.number(0));
  constexpr size_t last_of_f32 = 3;  // words of 64 bits; no f32 needs more
  for (size_t i = 0; i < (w.width == 64 ? std::size(two_over_pi) : last_of_f32); ++i) {
    if (w.width == 32) words.push_back(w.number(two_over_pi[i] >> 32));
    words.push_back(w.number(w.width == 64 ? two_over_pi[i] : two_over_pi[i] & 0xffffffff));
  }
  for (size_t step = w.width == 64 ? 16 : 4; step > 0; step /= 2) {
    const Expr on = w.let("on", (at & w.number(step)) != w.number(0));
    std::vector<Expr> next;
    for (size_t i = 0; i < std::min(words.size(), step + 3); ++i) {
      const Expr& far = words[std::min(i + step, words.size() - 1)];
      next.push_back(equal(far, words[i]) ? far : w.let("word", select(on, far, words[i])));
    }
    words = std::move(next);
  }
  return {words.at(0), words.at(1), words.at(2), words.at(3)};
}

// size = quarters * pi / 2 + r + tail, with |r| <= pi / 4 and quarters modulo 4.
struct Reduced {
  Expr r, tail, quarters;
};
Reduced reduce(KernelBuilder& b, const MathFormat& f, const Expr& size) {
  const Words w(b, f);
  const int width = w.width;
  const Expr bits = b.let("bits", bitcast(w.dtype, size));
  const Expr m = b.let("m", w.shl(bits, width - 1 - f.mantissa()) | w.number(uint64_t{1} << (width - 1)));
  // m 2 / pi modulo 4: three words, of which the first bit counts 2^(width + 1) fractions of m, begin at bit `place`.
  const Expr place = b.let("place", w.shr(bits, f.mantissa()) - w.number(static_cast<uint64_t>(f.bias() - width + 1)));
  const std::array<Expr, 4> words =
      window(w, b.let("at", w.shr(place, std::countr_zero(static_cast<unsigned>(width)))));
  const Expr by = b.let("by", place & w.number(static_cast<uint64_t>(width - 1)));
  const Expr back = b.let("back", w.inverted(by, static_cast<uint64_t>(width - 1)));
  std::array<Expr, 3> a;
  for (size_t i = 0; i < 3; ++i)
    a[i] = b.let("a", binary(BinaryOp::shl, words[i], by) | binary(BinaryOp::shr, w.shr(words[i + 1], 1), back));
  const Expr middle = b.let("middle", m * a[1]), low = b.let("low", w.high(a[2], m) + middle);
  const Expr high = b.let("high", w.high(a[1], m) + m * a[0] + w.one_where(low < middle));
  // The two bits above the fraction, rounded to nearest; what is left has a sign.
  const Expr quarters = b.let("quarters", w.shr(high + w.number(uint64_t{1} << (width - 3)), width - 2));
  const Expr rest = b.let("rest", high - w.shl(quarters, width - 2));
  const Expr negative = b.let("negative", w.shr(rest, width - 1) != w.number(0));
  const Expr h = b.let(
      "h", select(negative, w.inverted(rest, ~uint64_t{0} >> (64 - width)) + w.one_where(low == w.number(0)), rest));
  const Expr l = b.let("l", select(negative, w.number(0) - low, low));
  // A fraction near 0 moves up, so that a float holds enough of it.
  const Expr small = b.let("small", h < w.number(uint64_t{1} << (width / 2 - 1)));
  const Expr upper =
      b.let("upper", bitcast(f.bits_dtype(), select(small, w.shl(h, width / 2) | w.shr(l, width / 2), h)));
  const Expr lower = w.shr(select(small, w.shl(l, width / 2), l), 1);
  const Expr scale = select(small, f.number(std::ldexp(1.0, -width / 2)), f.number(1));
  const Expr signed_scale = b.let("scale", select(negative, unary(UnaryOp::neg, scale), scale));
  // times pi / 2, in two floats.
  const double unit = std::ldexp(1.0, 2 - width);
  const Expr half_pi = f.number(unit * (f.wide ? 0x1.921fb54442d18p+0 : 0x1.921fb6p+0));
  const Expr half_pi_rest = f.number(unit * (f.wide ? 0x1.1a62633145c07p-54 : -0x1.777a5cp-25));
  const Expr x = b.let("x", cast(f.dtype, upper));
  const Expr x_rest =
      b.let("x_rest", fma(cast(f.dtype, bitcast(f.bits_dtype(), lower)), f.number(std::ldexp(1.0, 1 - width)),
                          cast(f.dtype, upper - cast(f.bits_dtype(), x))));
  const Expr y = b.let("y", x * half_pi);
  const Expr y_rest = fma(x, half_pi, unary(UnaryOp::neg, y)) + fma(x, half_pi_rest, x_rest * half_pi);
  const Expr z = b.let("y_rest", y_rest), sum = b.let("sum", y + z);
  const Expr near = b.let("near", size <= f.pick(0x1.921fb6p-1, 0x1.921fb54442d18p-1));
  return {b.let("r", select(near, size, sum * signed_scale)),
          b.let("tail", select(near, f.number(0), (z - (sum - y)) * signed_scale)),
          b.let("quarters", select(near, w.number(0), quarters))};
}

// sin of x with quarter turns added.
Expr sine(KernelBuilder& b, const char* name, Expr argument, uint64_t turns) {
  const MathFormat f(argument.dtype());
  const Expr given = named(b, std::move(argument)), size = b.let("size", absolute(given));
  const Reduced at = reduce(b, f, size);
  const Expr &r = at.r, &tail = at.tail, z = b.let("z", r * r);
  const Expr s = f.wide ? horner(f, z,
                                 {1.58969099521155010221e-10, -2.50507602534068634195e-08, 2.75573137070700676789e-06,
                                  -1.98412698298579493134e-04, 8.33333333332248946124e-03, -1.66666666666666324348e-01})
                        : horner(f, z, {-1.9515295891e-4, 8.3321608736e-3, -1.6666654611e-1});
  const Expr half = b.let("half", z * f.number(0.5));
  const Expr odd = r + fma(z * r, s, fma(unary(UnaryOp::neg, tail), half, tail));
  const Expr c = f.wide ? horner(f, z,
                                 {-1.13596475577881948265e-11, 2.08757232129817482790e-09, -2.75573143513906633035e-07,
                                  2.48015872894767294178e-05, -1.38888888888741095749e-03, 4.16666666666666019037e-02})
                        : horner(f, z, {2.443315711809948e-5, -1.388731625493765e-3, 4.166664568298827e-2});
  const Expr close = b.let("close", f.number(1) - half);
  const Expr even = close + (((f.number(1) - close) - half) + fma(z * z, c, unary(UnaryOp::neg, r * tail)));
  const DType word = at.quarters.dtype();
  const auto bit = [&](const Expr& e, uint64_t n) { return (e & constant_bits(word, n)) != constant_bits(word, 0); };
  const Expr quarters = b.let("quarters", at.quarters + constant_bits(word, turns));
  const Expr value = b.let("value", select(bit(quarters, 1), even, odd));
  const Expr turned = b.let("turned", select(bit(quarters, 2), unary(UnaryOp::neg, value), value));
  const Expr finite = size < f.number(HUGE_VAL);
  if (turns != 0) return b.let(name, select(finite, turned, nan(f)));
  // Odd, -0 too.
  const Expr sign = bitcast(f.bits_dtype(), given) & f.integer(f.wide ? INT64_MIN : INT32_MIN);
  return b.let(
      name, select(finite, bitcast(f.dtype, binary(BinaryOp::bit_xor, bitcast(f.bits_dtype(), turned), sign)), nan(f)));
}

}  // namespace

Expr sin(KernelBuilder& b, Expr x) { return sine(b, "sin", std::move(x), 0); }
Expr cos(KernelBuilder& b, Expr x) { return sine(b, "cos", std::move(x), 1); }

}  // namespace gradloom::ir
