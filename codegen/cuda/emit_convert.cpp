// Casts and bitcasts: each conversion is exact or rounds once (gradloom/expr.h).
#include <fmt/format.h>

#include <cmath>

#include "codegen/cuda/emitter.h"
#include "ir/scalar_math.h"

namespace gradloom::codegen {
namespace {

// The arguments of gl_to_int: the bounds below and from which a value is out of range, and the results it saturates to.
std::string integer_limits(DType to, DType from) {
  const int bits = size_of(to) * 8;
  const bool is_signed = is_signed_int(to);
  const auto limit = [&](double v) { return c_constant(from, ir::bits_from_double(from, v)); };
  const double above = std::ldexp(1.0, is_signed ? bits - 1 : bits);
  const uint64_t most = is_signed ? ~uint64_t{0} >> (65 - bits) : ~uint64_t{0} >> (64 - bits),
                 least = is_signed ? uint64_t{1} << (bits - 1) : 0;
  return fmt::format("{}, {}, {}, {}", limit(is_signed ? -above : 0.0), limit(above), c_constant(to, least),
                     c_constant(to, most));
}

}  // namespace

Text FunctionEmitter::node(const ir::Cast& n, Type type, const ir::Expr&) {
  const Text a = value(n.value);
  const DType from = n.value.dtype(), to = type.dtype;
  if (to == DType::i64 && (from == DType::i32 || from == DType::i16 || from == DType::i8 || from == DType::u8 ||
                           from == DType::u16 || from == DType::boolean))
    return {a.lanes, true, a.atom};
  Text out;
  for (const std::string& x : a.lanes) {
    std::string v = x;
    if (is_storage_float(from)) {
      if (to == DType::boolean) {
        out.lanes.push_back(fmt::format("(({} & 0x7fff) != 0)", parenthesised(x)));
        continue;
      }
      v = fmt::format("gl_from_{}({})", to_string(from), x);
    }
    const DType middle = is_storage_float(from) ? DType::f32 : from;
    if (is_storage_float(to)) {
      const bool exact = middle == DType::f32 || size_of(middle) <= 2;
      const char* widest = is_float(middle) ? "double" : size_of(middle) == 8 ? c_type(middle) : "double";
      out.lanes.push_back(fmt::format("gl_to_{}({})", to_string(to),
                                      exact ? fmt::format("(float){}", parenthesised(v))
                                            : fmt::format("gl_odd(({}){})", widest, parenthesised(v))));
    } else if (to == DType::boolean) {
      out.lanes.push_back(fmt::format("({} != 0)", parenthesised(v)));
    } else if (is_float(middle) && !is_float(to)) {
      out.lanes.push_back(fmt::format("gl_to_int<{}>({}, {})", c_type(to), v, integer_limits(to, middle)));
    } else {
      out.lanes.push_back(middle == to ? v : fmt::format("({}){}", c_type(to), parenthesised(v)));
    }
  }
  return out;
}

Text FunctionEmitter::node(const ir::Bitcast& n, Type type, const ir::Expr&) {
  const Text a = value(n.value);
  const DType from = n.value.dtype(), to = type.dtype;
  Text out;
  for (const std::string& x : a.lanes) {
    const std::string integer = is_arithmetic_float(from) ? fmt::format("gl_bits({})", x) : x;
    if (to == DType::f32)
      out.lanes.push_back(from == DType::f32 ? x : fmt::format("gl_float((unsigned){})", parenthesised(integer)));
    else if (to == DType::f64)
      out.lanes.push_back(
          from == DType::f64 ? x : fmt::format("gl_double((unsigned long long){})", parenthesised(integer)));
    else
      out.lanes.push_back(to == DType::boolean ? fmt::format("({} != 0)", parenthesised(integer))
                                               : fmt::format("({}){}", c_type(to), parenthesised(integer)));
  }
  return out;
}

}  // namespace gradloom::codegen
