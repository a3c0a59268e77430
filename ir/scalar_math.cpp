#include "ir/scalar_math.h"

#include <bit>
#include <cmath>
#include <limits>
#include <string>
#include <type_traits>

#include "gradloom/expr.h"

namespace gradloom::ir {
namespace {

static_assert(std::numeric_limits<float>::is_iec559 && std::numeric_limits<double>::is_iec559);

[[noreturn]] void undefined(const std::string& op, DType dtype) {
  throw Error(ErrorCode::internal, "scalar math: " + op + " is not defined on " + to_string(dtype));
}

// The bit layout of a storage float.
struct StorageFormat {
  explicit StorageFormat(DType t)
      : mantissa(info_of(t).mantissa_bits),
        bias(info_of(t).exponent_bias()),
        sign(uint64_t{1} << (8 * size_of(t) - 1)) {}
  int mantissa, bias;
  uint64_t sign;
  uint64_t infinity() const { return sign - (uint64_t{1} << mantissa); }
  uint64_t quiet_bit() const { return uint64_t{1} << (mantissa - 1); }
};

// magnitude * 2^exponent, rounded once to nearest even.
uint64_t round_to_storage(DType to, bool negative, uint64_t magnitude, int exponent) {
  const StorageFormat format(to);
  const uint64_t sign = negative ? format.sign : 0;
  if (magnitude == 0) return sign;
  const int zeros = std::countl_zero(magnitude);
  magnitude <<= zeros;
  const int leading = exponent - zeros + 63;  // the value is 2^leading * [1, 2)
  const int smallest = 1 - format.bias;       // of a normal number
  if (leading > format.bias) return sign | format.infinity();
  const int shift = 63 - format.mantissa + (leading < smallest ? smallest - leading : 0);
  if (shift > 64) return sign;
  const uint64_t kept = shift == 64 ? 0 : magnitude >> shift;
  const uint64_t rest = shift == 64 ? magnitude : magnitude & ((uint64_t{1} << shift) - 1);
  const uint64_t half = uint64_t{1} << (shift - 1);
  const uint64_t rounded = kept + (rest > half || (rest == half && (kept & 1)));
  // A normal number's leading bit adds one to the exponent field; so does a carry, up to infinity.
  const uint64_t field = leading < smallest ? 0 : static_cast<uint64_t>(leading - smallest) << format.mantissa;
  return sign | (field + rounded);
}

uint64_t storage_from_double(DType to, double value) {
  const uint64_t bits = std::bit_cast<uint64_t>(value);
  const bool negative = bits >> 63;
  const int field = static_cast<int>((bits >> 52) & 0x7ff);
  const uint64_t fraction = bits & ((uint64_t{1} << 52) - 1);
  if (field == 0x7ff) {
    const StorageFormat format(to);
    const uint64_t payload = fraction ? format.quiet_bit() | (fraction >> (52 - format.mantissa)) : 0;
    return (negative ? format.sign : 0) | format.infinity() | payload;
  }
  return field ? round_to_storage(to, negative, fraction | (uint64_t{1} << 52), field - 1075)
               : round_to_storage(to, negative, fraction, -1074);
}

double double_from_storage(DType from, uint64_t bits) {
  const StorageFormat format(from);
  const uint64_t fraction = bits & ((uint64_t{1} << format.mantissa) - 1);
  const int field = static_cast<int>((bits & (format.sign - 1)) >> format.mantissa);
  const bool negative = bits & format.sign;
  double value;
  if ((bits & format.infinity()) == format.infinity())
    value = std::bit_cast<double>((uint64_t{0x7ff} << 52) |
                                  (fraction ? (uint64_t{1} << 51) | (fraction << (52 - format.mantissa)) : 0));
  else if (field == 0)
    value = std::ldexp(static_cast<double>(fraction), 1 - format.bias - format.mantissa);
  else
    value = std::ldexp(static_cast<double>(fraction | (uint64_t{1} << format.mantissa)),
                       field - format.bias - format.mantissa);
  return std::copysign(value, negative ? -1.0 : 1.0);
}

template <class T>
T value_of(uint64_t bits) {
  if constexpr (std::is_same_v<T, float>)
    return std::bit_cast<float>(static_cast<uint32_t>(bits));
  else if constexpr (std::is_same_v<T, double>)
    return std::bit_cast<double>(bits);
  else
    return static_cast<T>(bits);
}

template <class T>
uint64_t bits_of(T value) {
  if constexpr (std::is_same_v<T, float>)
    return std::bit_cast<uint32_t>(value);
  else if constexpr (std::is_same_v<T, double>)
    return std::bit_cast<uint64_t>(value);
  else
    return static_cast<uint64_t>(static_cast<std::make_unsigned_t<T>>(value));
}

// Calls f with a value of the C++ type that implements a dtype of this kind and size; booleans count as u8.
template <class F>
auto dispatch(DType dtype, const char* what, F&& f) {
  const DTypeInfo& info = info_of(dtype);
  switch (info.storage ? 0 : info.bytes) {
    case 1:
      return info.kind == DTypeInfo::signed_int ? f(int8_t{}) : f(uint8_t{});
    case 2:
      return info.kind == DTypeInfo::signed_int ? f(int16_t{}) : f(uint16_t{});
    case 4:
      if (info.kind == DTypeInfo::floating) return f(float{});
      return info.kind == DTypeInfo::signed_int ? f(int32_t{}) : f(uint32_t{});
    case 8:
      if (info.kind == DTypeInfo::floating) return f(double{});
      return info.kind == DTypeInfo::signed_int ? f(int64_t{}) : f(uint64_t{});
    default:
      undefined(what, dtype);
  }
}

template <class T>
T float_unary(UnaryOp op, T a, DType dtype) {
  switch (op) {
    case UnaryOp::neg:
      return -a;
    case UnaryOp::abs:
      return std::fabs(a);
    case UnaryOp::sqrt:
      return std::sqrt(a);
    case UnaryOp::floor:
      return std::floor(a);
    case UnaryOp::ceil:
      return std::ceil(a);
    case UnaryOp::trunc:
      return std::trunc(a);
    case UnaryOp::bit_not:
      break;
  }
  undefined(to_string(op), dtype);
}

template <class T>
T minimum(T a, T b) {
  if (std::isnan(a) || std::isnan(b)) return a + b;
  if (a == b) return std::signbit(a) ? a : b;
  return a < b ? a : b;
}

template <class T>
T maximum(T a, T b) {
  if (std::isnan(a) || std::isnan(b)) return a + b;
  if (a == b) return std::signbit(a) ? b : a;
  return a > b ? a : b;
}

template <class T>
uint64_t float_binary(BinaryOp op, T a, T b, DType dtype) {
  switch (op) {
    case BinaryOp::add:
      return bits_of<T>(a + b);
    case BinaryOp::sub:
      return bits_of<T>(a - b);
    case BinaryOp::mul:
      return bits_of<T>(a * b);
    case BinaryOp::div:
      return bits_of<T>(a / b);
    case BinaryOp::min:
      return bits_of<T>(minimum(a, b));
    case BinaryOp::max:
      return bits_of<T>(maximum(a, b));
    case BinaryOp::eq:
      return a == b;
    case BinaryOp::ne:
      return a != b;
    case BinaryOp::lt:
      return a < b;
    case BinaryOp::le:
      return a <= b;
    case BinaryOp::gt:
      return a > b;
    case BinaryOp::ge:
      return a >= b;
    default:
      undefined(to_string(op), dtype);
  }
}

template <class T>
T floor_divide(T a, T b, DType dtype) {
  if (b == 0) undefined("division by zero", dtype);
  if constexpr (std::is_signed_v<T>) {
    if (b == -1) return static_cast<T>(0 - static_cast<uint64_t>(a));
    const T quotient = static_cast<T>(a / b);
    return static_cast<T>(quotient - ((a % b != 0) && ((a < 0) != (b < 0))));
  } else {
    return static_cast<T>(a / b);
  }
}

template <class T>
uint64_t int_binary(BinaryOp op, uint64_t a_bits, uint64_t b_bits, DType dtype) {
  const T a = value_of<T>(a_bits), b = value_of<T>(b_bits);
  const auto wrap = [](uint64_t bits) { return bits_of<T>(static_cast<T>(bits)); };
  switch (op) {
    case BinaryOp::add:
      return wrap(a_bits + b_bits);
    case BinaryOp::sub:
      return wrap(a_bits - b_bits);
    case BinaryOp::mul:
      return wrap(a_bits * b_bits);
    case BinaryOp::floor_div:
      return bits_of<T>(floor_divide(a, b, dtype));
    case BinaryOp::floor_mod:
      return wrap(a_bits - bits_of<T>(floor_divide(a, b, dtype)) * b_bits);
    case BinaryOp::min:
      return a < b ? a_bits : b_bits;
    case BinaryOp::max:
      return a > b ? a_bits : b_bits;
    case BinaryOp::bit_and:
      return a_bits & b_bits;
    case BinaryOp::bit_or:
      return a_bits | b_bits;
    case BinaryOp::bit_xor:
      return a_bits ^ b_bits;
    case BinaryOp::shl:
      return wrap(a_bits << (b_bits & 63));
    case BinaryOp::shr:
      return bits_of<T>(static_cast<T>(a >> (b_bits & (sizeof(T) * 8 - 1))));
    case BinaryOp::eq:
      return a == b;
    case BinaryOp::ne:
      return a != b;
    case BinaryOp::lt:
      return a < b;
    case BinaryOp::le:
      return a <= b;
    case BinaryOp::gt:
      return a > b;
    case BinaryOp::ge:
      return a >= b;
    case BinaryOp::div:
      break;
  }
  undefined(to_string(op), dtype);
}

template <class T>
uint64_t saturate(double value) {
  using Limits = std::numeric_limits<T>;
  if (std::isnan(value)) return 0;
  const double past = std::ldexp(1.0, Limits::digits);  // max + 1, exact
  if (value >= past) return bits_of<T>(Limits::max());
  if (value <= static_cast<double>(Limits::min())) return bits_of<T>(Limits::min());
  return bits_of<T>(static_cast<T>(value));
}

uint64_t cast_from_int(DType from, DType to, uint64_t bits) {
  const int64_t value = int_from_bits(from, bits);
  if (!is_float(to)) return bits_from_int(to, value);
  if (is_signed_int(from) || value >= 0) return bits_from_int(to, value);
  // A u64 of 2^63 or more.
  if (is_storage_float(to)) return round_to_storage(to, false, bits, 0);
  return dispatch(to, "a cast", [bits](auto type) { return bits_of(static_cast<decltype(type)>(bits)); });
}

}  // namespace

uint64_t bits_from_int(DType dtype, int64_t value) {
  if (dtype == DType::boolean) return value != 0;
  if (is_storage_float(dtype))
    return round_to_storage(dtype, value < 0,
                            value < 0 ? 0 - static_cast<uint64_t>(value) : static_cast<uint64_t>(value), 0);
  return dispatch(dtype, "an integer", [value](auto type) { return bits_of(static_cast<decltype(type)>(value)); });
}

int64_t int_from_bits(DType dtype, uint64_t bits) {
  if (is_float(dtype)) return static_cast<int64_t>(eval_cast(dtype, DType::i64, bits));
  return dispatch(dtype, "an integer",
                  [bits](auto type) { return static_cast<int64_t>(value_of<decltype(type)>(bits)); });
}

uint64_t bits_from_double(DType dtype, double value) {
  return eval_cast(DType::f64, dtype, std::bit_cast<uint64_t>(value));
}

double double_from_bits(DType dtype, uint64_t bits) {
  if (is_storage_float(dtype)) return double_from_storage(dtype, bits);
  return dispatch(dtype, "a number", [bits](auto type) { return static_cast<double>(value_of<decltype(type)>(bits)); });
}

uint64_t eval_unary(UnaryOp op, DType dtype, uint64_t a) {
  if (dtype == DType::boolean) {
    if (op == UnaryOp::bit_not) return a ^ 1;
    undefined(to_string(op), dtype);
  }
  return dispatch(dtype, to_string(op), [=](auto type) -> uint64_t {
    using T = decltype(type);
    if constexpr (std::is_floating_point_v<T>) {
      return bits_of(float_unary(op, value_of<T>(a), dtype));
    } else {
      const auto wrap = [](uint64_t bits) { return bits_of<T>(static_cast<T>(bits)); };
      switch (op) {
        case UnaryOp::neg:
          return wrap(0 - a);
        case UnaryOp::bit_not:
          return wrap(~a);
        case UnaryOp::abs:
          return value_of<T>(a) < T{0} ? wrap(0 - a) : a;
        default:
          undefined(to_string(op), dtype);
      }
    }
  });
}

uint64_t eval_binary(BinaryOp op, DType dtype, uint64_t a, uint64_t b) {
  if (dtype == DType::i64) return int_binary<int64_t>(op, a, b, dtype);
  if (dtype == DType::boolean && !is_comparison(op) && !(op >= BinaryOp::bit_and && op <= BinaryOp::bit_xor))
    undefined(to_string(op), dtype);
  return dispatch(dtype, to_string(op), [=](auto type) -> uint64_t {
    using T = decltype(type);
    if constexpr (std::is_floating_point_v<T>)
      return float_binary<T>(op, value_of<T>(a), value_of<T>(b), dtype);
    else
      return int_binary<T>(op, a, b, dtype);
  });
}

bool is_defined(BinaryOp op, DType dtype, uint64_t b) {
  if (op == BinaryOp::floor_div || op == BinaryOp::floor_mod) return b != 0;
  if (op == BinaryOp::shl || op == BinaryOp::shr) return b < static_cast<uint64_t>(size_of(dtype)) * 8;
  return true;
}

uint64_t eval_fma(DType dtype, uint64_t a, uint64_t b, uint64_t c) {
  return dispatch(dtype, "fma", [=](auto type) -> uint64_t {
    using T = decltype(type);
    if constexpr (std::is_floating_point_v<T>)
      return bits_of(std::fma(value_of<T>(a), value_of<T>(b), value_of<T>(c)));
    else
      undefined("fma", dtype);
  });
}

uint64_t eval_cast(DType from, DType to, uint64_t bits) {
  if (from == to) return bits;
  if (!is_float(from)) return cast_from_int(from, to, bits);
  const double value = double_from_bits(from, bits);  // exact
  if (to == DType::boolean) return value != 0;        // a NaN is nonzero
  if (is_storage_float(to)) return storage_from_double(to, value);
  return dispatch(to, "a cast", [value](auto type) -> uint64_t {
    using T = decltype(type);
    if constexpr (std::is_floating_point_v<T>)
      return bits_of(static_cast<T>(value));
    else
      return saturate<T>(value);
  });
}

}  // namespace gradloom::ir
