// C++ as text: types, constants, and when an operand needs parentheses.
#include <fmt/format.h>

#include <bit>
#include <charconv>
#include <cmath>

#include "codegen/cuda/emitter.h"
#include "ir/scalar_math.h"

namespace gradloom::codegen {
namespace {

// The shortest decimal that round-trips.
template <class T>
std::string decimal(T value) {
  char buffer[64];
  const auto [end, error] = std::to_chars(buffer, buffer + sizeof buffer, value);
  std::string text(buffer, end);
  return text.find_first_of(".e") == std::string::npos ? text + ".0" : text;
}

// The position after the bracket that closes the one at `i`.
size_t after_brackets(const std::string& text, size_t i) {
  int depth = 0;
  do {
    depth += text[i] == '(' || text[i] == '[';
    depth -= text[i] == ')' || text[i] == ']';
  } while (++i < text.size() && depth > 0);
  return i;
}

// A primary expression (name, call, subscript or parentheses) binds tighter than any operator.
bool primary(const std::string& text) {
  if (!text.empty() && text[0] == '(') return after_brackets(text, 0) == text.size();
  size_t i = 0;
  const auto word = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.'; };
  while (i < text.size() && word(text[i])) ++i;
  if (i == 0) return false;
  if (i < text.size() && text[i] == '<') i = text.find('>', i) == std::string::npos ? i : text.find('>', i) + 1;
  while (i < text.size() && (text[i] == '(' || text[i] == '[')) i = after_brackets(text, i);
  return i == text.size();
}

}  // namespace

const char* c_type(DType dtype) {
  switch (dtype) {
    case DType::boolean:
      return "bool";
    case DType::i8:
      return "signed char";
    case DType::u8:
      return "unsigned char";
    case DType::i16:
      return "short";
    case DType::u16:
    case DType::f16:
    case DType::bf16:
      return "unsigned short";
    case DType::i32:
      return "int";
    case DType::u32:
      return "unsigned";
    case DType::i64:
      return "long long";
    case DType::u64:
      return "unsigned long long";
    case DType::f32:
      return "float";
    case DType::f64:
      return "double";
  }
  return "?";
}

std::string parenthesised(const std::string& text) { return primary(text) ? text : "(" + text + ")"; }

bool simple_name(const std::string& text) {
  for (const char c : text)
    if (!std::isalnum(static_cast<unsigned char>(c)) && c != '_' && c != '.') return false;
  return true;
}

bool literal(const std::string& text) {
  const size_t first = !text.empty() && text[0] == '-';
  if (first == text.size() || !std::isdigit(static_cast<unsigned char>(text[first]))) return false;
  for (size_t i = first + 1; i < text.size(); ++i) {
    const bool of_exponent = (text[i] == '-' || text[i] == '+') && text[i - 1] == 'e';
    if (!std::isalnum(static_cast<unsigned char>(text[i])) && text[i] != '.' && !of_exponent) return false;
  }
  return true;
}

std::string c_constant(DType dtype, uint64_t bits) {
  switch (dtype) {
    case DType::boolean:
      return bits ? "true" : "false";
    case DType::i8:
    case DType::i16:
      return fmt::format("({}){}", c_type(dtype), ir::int_from_bits(dtype, bits));
    case DType::i32: {
      const int64_t v = ir::int_from_bits(dtype, bits);
      return v == -2147483648LL ? "(-2147483647 - 1)" : std::to_string(v);
    }
    case DType::u8:
    case DType::u16:
    case DType::f16:
    case DType::bf16:
      return fmt::format("({}){}", c_type(dtype), bits);
    case DType::u32:
      return fmt::format("{}u", bits);
    case DType::u64:
      return fmt::format("{}ull", bits);
    case DType::i64: {
      const auto v = static_cast<int64_t>(bits);
      if (v == INT64_MIN) return "(-9223372036854775807ll - 1)";
      return v >= -2147483647 && v <= 2147483647 ? std::to_string(v) : fmt::format("{}ll", v);
    }
    case DType::f32: {
      const float v = std::bit_cast<float>(static_cast<uint32_t>(bits));
      return std::isfinite(v) ? decimal(v) + "f" : fmt::format("gl_float(0x{:x}u)", bits);
    }
    case DType::f64: {
      const auto v = std::bit_cast<double>(bits);
      return std::isfinite(v) ? decimal(v) : fmt::format("gl_double(0x{:x}ull)", bits);
    }
  }
  throw Error(ErrorCode::internal, "emit_cuda: a constant of an unknown dtype");
}

}  // namespace gradloom::codegen
