// Expressions, each the C++ of its definition in ir/expr.h; lane by lane. i64 arithmetic goes into int where its range is proved to fit.
#include <fmt/format.h>

#include <bit>
#include <charconv>
#include <cmath>

#include "codegen/cuda/emitter.h"
#include "ir/rewrite.h"
#include "ir/scalar_math.h"

namespace gradloom::codegen {
namespace {

// The shortest decimal that reads back as the same value.
template <class T>
std::string decimal(T value) {
  char buffer[64];
  const auto [end, error] = std::to_chars(buffer, buffer + sizeof buffer, value);
  std::string text(buffer, end);
  return text.find_first_of(".e") == std::string::npos ? text + ".0" : text;
}

// The place after the bracket that closes the one at `i`.
size_t after_brackets(const std::string& text, size_t i) {
  int depth = 0;
  do {
    depth += text[i] == '(' || text[i] == '[';
    depth -= text[i] == ')' || text[i] == ']';
  } while (++i < text.size() && depth > 0);
  return i;
}

// A name, a call, a subscript or what is in parentheses binds tighter than any operator.
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


const char* symbol(ir::BinaryOp op) {
  switch (op) {
    case ir::BinaryOp::add: return "+";
    case ir::BinaryOp::sub: return "-";
    case ir::BinaryOp::mul: return "*";
    case ir::BinaryOp::div: return "/";
    case ir::BinaryOp::floor_div: return "/";
    case ir::BinaryOp::floor_mod: return "%";
    case ir::BinaryOp::bit_and: return "&";
    case ir::BinaryOp::bit_or: return "|";
    case ir::BinaryOp::bit_xor: return "^";
    case ir::BinaryOp::shr: return ">>";
    case ir::BinaryOp::eq: return "==";
    case ir::BinaryOp::ne: return "!=";
    case ir::BinaryOp::lt: return "<";
    case ir::BinaryOp::le: return "<=";
    case ir::BinaryOp::gt: return ">";
    case ir::BinaryOp::ge: return ">=";
    case ir::BinaryOp::min:
    case ir::BinaryOp::max:
    case ir::BinaryOp::shl: return nullptr;
  }
  return nullptr;
}

const char* helper(ir::BinaryOp op) {
  switch (op) {
    case ir::BinaryOp::add: return "gl_add";
    case ir::BinaryOp::sub: return "gl_sub";
    case ir::BinaryOp::mul: return "gl_mul";
    case ir::BinaryOp::floor_div: return "gl_floor_div";
    case ir::BinaryOp::floor_mod: return "gl_floor_mod";
    case ir::BinaryOp::min: return "gl_min";
    case ir::BinaryOp::max: return "gl_max";
    case ir::BinaryOp::shl: return "gl_shl";
    case ir::BinaryOp::div:
    case ir::BinaryOp::bit_and:
    case ir::BinaryOp::bit_or:
    case ir::BinaryOp::bit_xor:
    case ir::BinaryOp::shr:
    case ir::BinaryOp::eq:
    case ir::BinaryOp::ne:
    case ir::BinaryOp::lt:
    case ir::BinaryOp::le:
    case ir::BinaryOp::gt:
    case ir::BinaryOp::ge: return nullptr;
  }
  return nullptr;
}

std::string integer_limits(DType to, DType from) {
  const int bits = size_of(to) * 8;
  const bool is_signed = is_signed_int(to);
  const std::string above = fmt::format("{}{}", decimal(std::ldexp(1.0, is_signed ? bits - 1 : bits)), from == DType::f32 ? "f" : "");
  const std::string low = is_signed ? "-" + above : std::string(from == DType::f32 ? "0.0f" : "0.0");
  const uint64_t most = is_signed ? ~uint64_t{0} >> (65 - bits) : ~uint64_t{0} >> (64 - bits), least = is_signed ? uint64_t{1} << (bits - 1) : 0;
  return fmt::format("{}, {}, {}, {}", low, above, c_constant(to, least), c_constant(to, most));
}

enum Precedence { sums = 1, products = 2, casts = 3 };

bool literal(const std::string& text) { return !text.empty() && (std::isdigit(static_cast<unsigned char>(text[0])) || text[0] == '-'); }

}  // namespace

const char* c_type(DType dtype) {
  switch (dtype) {
    case DType::boolean: return "bool";
    case DType::i8: return "signed char";
    case DType::u8: return "unsigned char";
    case DType::i16: return "short";
    case DType::u16:
    case DType::f16:
    case DType::bf16: return "unsigned short";
    case DType::i32: return "int";
    case DType::u32: return "unsigned";
    case DType::i64: return "long long";
    case DType::u64: return "unsigned long long";
    case DType::f32: return "float";
    case DType::f64: return "double";
  }
  return "?";
}

std::string parenthesised(const std::string& text) { return primary(text) ? text : "(" + text + ")"; }

bool simple_name(const std::string& text) {
  for (const char c : text)
    if (!std::isalnum(static_cast<unsigned char>(c)) && c != '_' && c != '.') return false;
  return true;
}

std::string c_constant(DType dtype, uint64_t bits) {
  switch (dtype) {
    case DType::boolean: return bits ? "true" : "false";
    case DType::i8:
    case DType::i16: return fmt::format("({}){}", c_type(dtype), ir::int_from_bits(dtype, bits));
    case DType::i32: {
      const int64_t v = ir::int_from_bits(dtype, bits);
      return v == -2147483648LL ? "(-2147483647 - 1)" : std::to_string(v);
    }
    case DType::u8:
    case DType::u16:
    case DType::f16:
    case DType::bf16: return fmt::format("({}){}", c_type(dtype), bits);
    case DType::u32: return fmt::format("{}u", bits);
    case DType::u64: return fmt::format("{}ull", bits);
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

bool FunctionEmitter::fits_int(const ir::Expr& e) const {
  const ir::Range r = ranges_.of(e);
  return r.min && r.max && *r.min >= -2147483647 && *r.max <= 2147483647;
}

// Parents first; a node that is used twice in one statement is computed once, under a name.
void FunctionEmitter::count_uses(const ir::Expr& e) {
  if (!e || ++uses_[e.get()] > 1) return;
  const auto all = [&](const std::vector<ir::Expr>& list) {
    for (const ir::Expr& x : list) count_uses(x);
  };
  struct Visit {
    FunctionEmitter& self;
    decltype(all)& list;
    void operator()(const ir::Const&) const {}
    void operator()(const ir::Var&) const {}
    void operator()(const ir::Load& n) const { list(n.index), self.count_uses(n.guard), self.count_uses(n.otherwise); }
    void operator()(const ir::Unary& n) const { self.count_uses(n.a); }
    void operator()(const ir::Binary& n) const { self.count_uses(n.a), self.count_uses(n.b); }
    void operator()(const ir::Fma& n) const { list({n.a, n.b, n.c}); }
    void operator()(const ir::Select& n) const { list({n.condition, n.a, n.b}); }
    void operator()(const ir::Cast& n) const { self.count_uses(n.value); }
    void operator()(const ir::Bitcast& n) const { self.count_uses(n.value); }
    void operator()(const ir::Ramp& n) const { self.count_uses(n.base), self.count_uses(n.stride); }
    void operator()(const ir::Broadcast& n) const { self.count_uses(n.value); }
    void operator()(const ir::Shuffle& n) const { self.count_uses(n.a), self.count_uses(n.b); }
    void operator()(const ir::Intrinsic& n) const { list(n.args); }
  };
  std::visit(Visit{*this, all}, e.node().value);
}

Text FunctionEmitter::bound(Text text, DType dtype, const char* hint) {
  if (text.atom) return text;
  Text named{.narrow = text.narrow, .atom = true};
  for (const std::string& lane : text.lanes) {
    if (simple_name(lane) || literal(lane)) {
      named.lanes.push_back(lane);
      continue;
    }
    const std::string name = fresh(hint);
    line(fmt::format("const {} {} = {};", text.narrow ? "int" : c_type(dtype), name, lane));
    named.lanes.push_back(name);
  }
  return named;
}

Text FunctionEmitter::value(const ir::Expr& e) {
  if (const auto found = memo_.find(e.get()); found != memo_.end()) return found->second.second;
  Text text = std::visit([&](const auto& n) { return node(n, e.type(), e); }, e.node().value);
  if (e.dtype() == DType::i64 && !text.narrow && (e.as<ir::Var>() || e.as<ir::Load>()) && fits_int(e)) {
    for (std::string& lane : text.lanes) lane = "(int)" + parenthesised(lane);
    text.narrow = true, text.atom = false, text.precedence = casts;
  }
  if (const auto used = uses_.find(e.get()); used != uses_.end() && used->second > 1) text = bound(std::move(text), e.dtype(), "t");
  memo_[e.get()] = {e, text};
  return text;
}

std::string FunctionEmitter::wide(const ir::Expr& e) {
  const Text text = value(e);
  return text.narrow && !literal(text.lanes[0]) ? "(long long)" + parenthesised(text.lanes[0]) : text.lanes[0];
}

Text FunctionEmitter::node(const ir::Const& n, Type type, const ir::Expr&) {
  std::string text = c_constant(type.dtype, n.bits);
  const bool narrow = type.dtype == DType::i64 && text.back() != 'l' && text[0] != '(';
  if (text[0] == '-') text = "(" + text + ")";
  return {{text}, narrow, true};
}

Text FunctionEmitter::node(const ir::Var& n, Type type, const ir::Expr&) {
  if (const auto found = vars_.find(n.id); found != vars_.end()) return found->second;
  // A variable of the host part, or a scalar: a parameter.
  const bool narrow = type.dtype == DType::i64 && fits_int(ir::var(n));
  const Text text{{slot(n.id, n.name, narrow ? Type{DType::i32} : type)}, narrow, true};
  return vars_[n.id] = text;
}

Text FunctionEmitter::node(const ir::Unary& n, Type type, const ir::Expr&) {
  const Text a = value(n.a);
  const bool floating = is_float(type.dtype);
  Text out;
  for (const std::string& x : a.lanes) {
    const std::string typed = a.narrow ? fmt::format("(long long){}", parenthesised(x)) : x;
    switch (n.op) {
      case ir::UnaryOp::neg: out.lanes.push_back(floating ? fmt::format("gl_neg({})", x) : fmt::format("gl_sub(({})0, {})", c_type(type.dtype), typed)); break;
      case ir::UnaryOp::bit_not: out.lanes.push_back(type.dtype == DType::boolean ? "!" + parenthesised(x) : fmt::format("({})~{}", c_type(type.dtype), parenthesised(typed))); break;
      case ir::UnaryOp::abs: out.lanes.push_back(is_unsigned_int(type.dtype) ? x : fmt::format("gl_abs({})", typed)); break;
      case ir::UnaryOp::sqrt: out.lanes.push_back(fmt::format("gl_sqrt({})", x)); break;
      case ir::UnaryOp::floor: out.lanes.push_back(fmt::format("gl_floor({})", x)); break;
      case ir::UnaryOp::ceil: out.lanes.push_back(fmt::format("gl_ceil({})", x)); break;
      case ir::UnaryOp::trunc: out.lanes.push_back(fmt::format("gl_trunc({})", x)); break;
    }
  }
  return out;
}

Text FunctionEmitter::node(const ir::Binary& n, Type type, const ir::Expr& self) {
  const Text a = value(n.a), b = value(n.b);
  const DType dtype = n.a.dtype();
  const bool comparison = ir::is_comparison(n.op), floating = is_float(dtype), is_i64 = dtype == DType::i64;
  const bool bits = n.op == ir::BinaryOp::bit_and || n.op == ir::BinaryOp::bit_or || n.op == ir::BinaryOp::bit_xor;
  const bool division = n.op == ir::BinaryOp::floor_div || n.op == ir::BinaryOp::floor_mod;
  const bool minmax = n.op == ir::BinaryOp::min || n.op == ir::BinaryOp::max;
  const ir::Range range = is_i64 && !comparison ? ranges_.of(self) : ir::Range{};
  // int arithmetic where operands and result fit; plain 64-bit arithmetic where the result is known not to wrap.
  const bool narrow = is_i64 && a.narrow && b.narrow && !comparison && n.op != ir::BinaryOp::shl && n.op != ir::BinaryOp::shr && fits_int(self);
  bool plain = floating || comparison || bits || (is_i64 && range.min && range.max);
  if (division) {
    const ir::Range dividend = ranges_.of(n.a), divisor = ranges_.of(n.b);
    plain = dividend.min && *dividend.min >= 0 && divisor.min && *divisor.min > 0;
  }
  if (n.op == ir::BinaryOp::shr) plain = true;
  if (minmax || n.op == ir::BinaryOp::shl) plain = false;
  const int precedence = n.op == ir::BinaryOp::add || n.op == ir::BinaryOp::sub ? sums : n.op == ir::BinaryOp::mul ? products : 0;
  // Sums and products read as in a book; others get parentheses. The arithmetic of two ints would be int, so one is widened.
  const auto operand = [&](const Text& t, size_t lane, bool right) {
    const std::string& x = t.lanes[lane];
    if (is_i64 && !narrow && !comparison && a.narrow && b.narrow && !right) return "(long long)" + parenthesised(x);
    if (!plain) return x;
    const bool binds = precedence && t.precedence && (right ? t.precedence > precedence : t.precedence >= precedence);
    return binds || (comparison && t.precedence) ? x : parenthesised(x);
  };
  Text out{.narrow = narrow, .precedence = plain ? precedence : 0};
  for (size_t lane = 0; lane < a.lanes.size(); ++lane) {
    const std::string x = operand(a, lane, false), y = operand(b, lane, true);
    if (plain) {
      const std::string body = fmt::format("{} {} {}", x, symbol(n.op), y);
      // Arithmetic of types narrower than int is done in int.
      const bool cut = !comparison && !floating && type.dtype != DType::boolean && size_of(dtype) < 4;
      out.lanes.push_back(cut ? fmt::format("({})({})", c_type(dtype), body) : body);
      if (!comparison && type.dtype == DType::boolean) out.lanes.back() = fmt::format("(bool)({})", body);
    } else {
      out.lanes.push_back(floating ? fmt::format("{}({}, {})", helper(n.op), x, y) : fmt::format("{}<{}>({}, {})", helper(n.op), narrow ? "int" : c_type(dtype), x, y));
    }
  }
  return out;
}

Text FunctionEmitter::node(const ir::Fma& n, Type, const ir::Expr&) {
  const Text a = value(n.a), b = value(n.b), c = value(n.c);
  Text out;
  for (size_t i = 0; i < a.lanes.size(); ++i) out.lanes.push_back(fmt::format("gl_fma({}, {}, {})", a.lanes[i], b.lanes[i], c.lanes[i]));
  return out;
}

Text FunctionEmitter::node(const ir::Select& n, Type type, const ir::Expr&) {
  const Text condition = value(n.condition), a = value(n.a), b = value(n.b);
  Text out{.narrow = type.dtype == DType::i64 && a.narrow && b.narrow};
  for (size_t i = 0; i < a.lanes.size(); ++i)
    out.lanes.push_back(fmt::format("({} ? {} : {})", condition.lanes[condition.lanes.size() == 1 ? 0 : i], parenthesised(a.lanes[i]), parenthesised(b.lanes[i])));
  return out;
}

Text FunctionEmitter::node(const ir::Cast& n, Type type, const ir::Expr&) {
  const Text a = value(n.value);
  const DType from = n.value.dtype(), to = type.dtype;
  if (to == DType::i64 && (from == DType::i32 || from == DType::i16 || from == DType::i8 || from == DType::u8 || from == DType::u16 || from == DType::boolean))
    return {a.lanes, true, a.atom};
  Text out;
  for (const std::string& x : a.lanes) {
    std::string v = x;
    if (from == DType::f16 || from == DType::bf16) {
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
      out.lanes.push_back(fmt::format("gl_to_{}({})", to_string(to), exact ? fmt::format("(float){}", parenthesised(v)) : fmt::format("gl_odd(({}){})", widest, parenthesised(v))));
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
    const std::string integer = from == DType::f32 || from == DType::f64 ? fmt::format("gl_bits({})", x) : x;
    if (to == DType::f32)
      out.lanes.push_back(from == DType::f32 ? x : fmt::format("gl_float((unsigned){})", parenthesised(integer)));
    else if (to == DType::f64)
      out.lanes.push_back(from == DType::f64 ? x : fmt::format("gl_double((unsigned long long){})", parenthesised(integer)));
    else
      out.lanes.push_back(to == DType::boolean ? fmt::format("({} != 0)", parenthesised(integer)) : fmt::format("({}){}", c_type(to), parenthesised(integer)));
  }
  return out;
}

Text FunctionEmitter::node(const ir::Ramp& n, Type type, const ir::Expr& self) {
  const Text base = bound(value(n.base), type.dtype, "base"), stride = bound(value(n.stride), type.dtype, "step");
  const std::optional<int64_t> step = ir::as_int(n.stride);
  const bool i64 = type.dtype == DType::i64, narrow = i64 && base.narrow && stride.narrow && fits_int(self);
  Text out{.narrow = narrow};
  for (int i = 0; i < n.lanes; ++i) {
    if (i == 0) {
      out.lanes.push_back(i64 && !narrow && base.narrow ? "(long long)" + parenthesised(base.lanes[0]) : base.lanes[0]);
    } else if (narrow && step) {
      const int64_t far = *step * i;
      out.lanes.push_back(fmt::format("{} {} {}", base.lanes[0], far < 0 ? "-" : "+", std::abs(far)));
    } else {
      const char* t = c_type(type.dtype);
      out.lanes.push_back(fmt::format("gl_add<{0}>({1}, gl_mul<{0}>({2}, {3}))", t, base.lanes[0], stride.lanes[0], i));
    }
  }
  return out;
}

Text FunctionEmitter::node(const ir::Broadcast& n, Type type, const ir::Expr&) {
  const Text a = bound(value(n.value), type.dtype, "all");
  return {std::vector<std::string>(static_cast<size_t>(n.lanes), a.lanes[0]), a.narrow, true};
}

Text FunctionEmitter::node(const ir::Shuffle& n, Type type, const ir::Expr&) {
  Text a = bound(value(n.a), type.dtype, "v"), b;
  if (n.b) b = bound(value(n.b), type.dtype, "v");
  const bool i64 = type.dtype == DType::i64;
  Text out{.narrow = a.narrow && (!n.b || b.narrow), .atom = true};
  const auto lane = [&](const Text& t, size_t i) { return i64 && t.narrow && !out.narrow ? "(long long)" + parenthesised(t.lanes[i]) : t.lanes[i]; };
  for (const int l : n.lanes) {
    const auto i = static_cast<size_t>(l);
    out.lanes.push_back(i < a.lanes.size() ? lane(a, i) : lane(b, i - a.lanes.size()));
  }
  return out;
}

Text FunctionEmitter::node(const ir::Intrinsic& n, Type, const ir::Expr&) {
  switch (n.op) {
    case ir::IntrinsicOp::prefetch: return {{"false"}, false, true};
    case ir::IntrinsicOp::all:
    case ir::IntrinsicOp::any: {
      const Text a = value(n.args[0]);
      std::string text;
      for (const std::string& x : a.lanes) text += (text.empty() ? "" : n.op == ir::IntrinsicOp::all ? " & " : " | ") + ("(int)" + parenthesised(x));
      return {{"((" + text + ") != 0)"}};
    }
  }
  throw Error(ErrorCode::internal, "emit_cuda: an unknown intrinsic");
}

}  // namespace gradloom::codegen
