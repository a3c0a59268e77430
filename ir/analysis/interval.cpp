#include "ir/analysis/interval.h"

#include <algorithm>
#include <array>
#include <bit>

namespace gradloom::ir {
namespace {

Interval bounded(const Interval& v) { return everything.contains(v) ? v : everything; }
bool far(const Interval& v) { return v.low == everything.low || v.high == everything.high; }

Interval quotient(const Interval& a, const Interval& b, DType dtype) {
  if (b.high < 0) return quotient(negate(a), negate(b), dtype);
  if (b.low < 1) return limits(dtype);
  return {floor_divide(a.low, a.low >= 0 ? b.high : b.low), floor_divide(a.high, a.high >= 0 ? b.low : b.high)};
}

Interval remainder(const Interval& a, const Interval& b, DType dtype) {
  if (b.high < 0) return negate(remainder(negate(a), negate(b), dtype));
  if (b.low < 1) return limits(dtype);
  if (b.single()) {
    const Wide base = floor_divide(a.low, b.low);
    if (base == floor_divide(a.high, b.low)) return {a.low - base * b.low, a.high - base * b.low};
  }
  if (a.low >= 0) return a.high < b.low ? a : Interval{0, std::min(b.high - 1, a.high)};
  return {0, b.high - 1};
}

constexpr auto limits_of = [] {
  std::array<Interval, dtype_count> limits;
  for (const DTypeInfo& info : dtype_table) {
    const int bits = info.kind == DTypeInfo::boolean ? 1 : info.kind == DTypeInfo::floating ? 64 : 8 * info.bytes;
    const Wide half = Wide{1} << (bits - 1);
    const bool negative = info.kind == DTypeInfo::signed_int || info.kind == DTypeInfo::floating;
    limits[static_cast<size_t>(info.dtype)] = negative ? Interval{-half, half - 1} : Interval{0, 2 * half - 1};
  }
  return limits;
}();

// Of two values that are not negative: no bit above the highest of either.
Interval bits_of(const Interval& a, const Interval& b) {
  const int bits = std::bit_width(static_cast<uint64_t>(std::max(a.high, b.high)));
  return {0, (Wide{1} << bits) - 1};
}

}  // namespace

Wide floor_divide(Wide a, Wide b) { return a / b - (a % b != 0 && a < 0); }

Interval limits(DType dtype) { return limits_of[static_cast<size_t>(dtype)]; }

bool keeps_value(DType from, DType to) { return is_int(from) && is_int(to) && limits(to).contains(limits(from)); }

Interval intersect(const Interval& a, const Interval& b) {
  const Interval both{std::max(a.low, b.low), std::min(a.high, b.high)};
  return both.empty() ? empty_interval : both;
}

Interval unite(const Interval& a, const Interval& b) {
  if (a.empty() || b.empty()) return a.empty() ? b : a;
  return {std::min(a.low, b.low), std::max(a.high, b.high)};
}

Interval wrapped(const Interval& exact, DType dtype) {
  const Interval all = limits(dtype);
  if (exact.empty()) return empty_interval;
  if (all.contains(exact)) return exact;
  if (far(exact) || dtype == DType::boolean) return all;
  const Wide period = all.high - all.low + 1;
  const Wide wraps = floor_divide(exact.low - all.low, period) * period;
  const Interval moved{exact.low - wraps, exact.high - wraps};
  return all.contains(moved) ? moved : all;
}

Interval add(const Interval& a, const Interval& b) {
  if (a.empty() || b.empty()) return empty_interval;
  return far(a) || far(b) ? everything : bounded({a.low + b.low, a.high + b.high});
}

Interval negate(const Interval& a) { return a.empty() ? empty_interval : Interval{-a.high, -a.low}; }

Interval multiply(const Interval& a, const Interval& b) {
  if (a.empty() || b.empty()) return empty_interval;
  Wide corners[4];
  bool overflow = __builtin_mul_overflow(a.low, b.low, &corners[0]);
  overflow |= __builtin_mul_overflow(a.low, b.high, &corners[1]);
  overflow |= __builtin_mul_overflow(a.high, b.low, &corners[2]);
  overflow |= __builtin_mul_overflow(a.high, b.high, &corners[3]);
  if (overflow) return everything;
  return bounded({*std::min_element(corners, corners + 4), *std::max_element(corners, corners + 4)});
}

std::optional<bool> compare_values(BinaryOp op, const Interval& a, const Interval& b) {
  const auto one_of = [](bool yes, bool no) { return yes || no ? std::optional(yes) : std::nullopt; };
  switch (op) {
    case BinaryOp::lt:
      return one_of(a.high < b.low, a.low >= b.high);
    case BinaryOp::le:
      return one_of(a.high <= b.low, a.low > b.high);
    case BinaryOp::gt:
      return compare_values(BinaryOp::lt, b, a);
    case BinaryOp::ge:
      return compare_values(BinaryOp::le, b, a);
    default: {
      const bool differ = a.high < b.low || b.high < a.low, same = a.single() && b.single() && a.low == b.low;
      return op == BinaryOp::eq ? one_of(same, differ) : one_of(differ, same);
    }
  }
}

Interval binary_values(BinaryOp op, DType dtype, const Interval& a, const Interval& b) {
  if (a.empty() || b.empty()) return empty_interval;
  if (is_comparison(op)) return limits(DType::boolean);
  const bool nonnegative = a.low >= 0 && b.low >= 0;
  switch (op) {
    case BinaryOp::add:
      return wrapped(add(a, b), dtype);
    case BinaryOp::sub:
      return wrapped(add(a, negate(b)), dtype);
    case BinaryOp::mul:
      return wrapped(multiply(a, b), dtype);
    case BinaryOp::floor_div:
      return wrapped(quotient(a, b, dtype), dtype);
    case BinaryOp::floor_mod:
      return wrapped(remainder(a, b, dtype), dtype);
    case BinaryOp::min:
      return {std::min(a.low, b.low), std::min(a.high, b.high)};
    case BinaryOp::max:
      return {std::max(a.low, b.low), std::max(a.high, b.high)};
    case BinaryOp::bit_and:
      if (nonnegative) return {0, std::min(a.high, b.high)};
      if (a.low >= 0) return {0, a.high};
      if (b.low >= 0) return {0, b.high};
      return limits(dtype);
    case BinaryOp::bit_or:
    case BinaryOp::bit_xor:
      return nonnegative ? bits_of(a, b) : limits(dtype);
    case BinaryOp::shl:
      if (b.single() && b.low >= 0 && b.low < 64)
        return wrapped(multiply(a, {Wide{1} << b.low, Wide{1} << b.low}), dtype);
      return limits(dtype);
    case BinaryOp::shr:
      if (b.low < 0 || b.high > 63) return limits(dtype);
      return quotient(a, {Wide{1} << b.low, Wide{1} << b.high}, dtype);
    default:
      return limits(dtype);
  }
}

}  // namespace gradloom::ir
