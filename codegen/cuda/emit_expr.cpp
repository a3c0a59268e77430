// Expressions as C++, lane by lane, with the semantics of gradloom/expr.h. i64 arithmetic is narrowed to int where its
// range provably fits.
#include <fmt/format.h>

#include <bit>
#include <cstdlib>

#include "codegen/cuda/emitter.h"
#include "ir/children.h"
#include "ir/operators.h"

namespace gradloom::codegen {
namespace {

// C++'s operator; of a floor division, where neither side is negative.
const char* symbol(ir::BinaryOp op) {
  return op == ir::BinaryOp::floor_div ? "/" : op == ir::BinaryOp::floor_mod ? "%" : ir::info_of(op).symbol;
}

// The value of a power-of-two constant that is uniform across lanes; 0 for any other expression.
uint64_t power_of_two(const ir::Expr& e) {
  const auto* broadcast = e.as<ir::Broadcast>();
  const std::optional<int64_t> value = ir::as_int(broadcast ? broadcast->value : e);
  return value && *value > 0 && std::has_single_bit(static_cast<uint64_t>(*value)) ? static_cast<uint64_t>(*value) : 0;
}

}  // namespace

bool FunctionEmitter::fits_int(const ir::Expr& e) const {
  const ir::Range r = ranges_.of(e);
  return r.min && r.max && *r.min >= -2147483647 && *r.max <= 2147483647;
}

// Visits parents first; a node with several uses in one statement is computed once, into a named temporary (CSE).
void FunctionEmitter::count_uses(const ir::Expr& e) {
  if (e && ++uses_[e.get()] == 1)
    std::visit(ir::Children{[&](const ir::Expr& part) { count_uses(part); }}, e.node().value);
}

Text FunctionEmitter::bound(Text text, DType dtype, const char* hint, bool copied) {
  if (text.atom && !copied) return text;
  Text named{.narrow = text.narrow, .atom = true};
  for (const std::string& lane : text.lanes) {
    if (literal(lane) || (simple_name(lane) && !copied)) {
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
  if (e.as<ir::Binary>())
    for (const auto& [division, name] : divisions_)
      if (ir::equal(division, e)) return name;
  Text text = std::visit([&](const auto& n) { return node(n, e.type(), e); }, e.node().value);
  if (e.dtype() == DType::i64 && !text.narrow && (e.as<ir::Var>() || e.as<ir::Load>()) && fits_int(e)) {
    for (std::string& lane : text.lanes) lane = "(int)" + parenthesised(lane);
    text.narrow = true, text.atom = false, text.precedence = ir::precedence::prefix;
  }
  if (const auto used = uses_.find(e.get()); used != uses_.end() && used->second > 1)
    text = bound(std::move(text), e.dtype(), "t");
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
  // A variable of the host part, or a kernel scalar, is passed as a parameter.
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
      case ir::UnaryOp::neg:
        out.lanes.push_back(floating ? fmt::format("gl_neg({})", x)
                                     : fmt::format("gl_sub(({})0, {})", c_type(type.dtype), typed));
        break;
      case ir::UnaryOp::bit_not:
        out.lanes.push_back(type.dtype == DType::boolean
                                ? fmt::format("!{}", parenthesised(x))
                                : fmt::format("({})~{}", c_type(type.dtype), parenthesised(typed)));
        break;
      case ir::UnaryOp::abs:
        out.lanes.push_back(is_unsigned_int(type.dtype) ? x : fmt::format("gl_abs({})", typed));
        break;
      case ir::UnaryOp::sqrt:
        out.lanes.push_back(fmt::format("gl_sqrt({})", x));
        break;
      case ir::UnaryOp::floor:
        out.lanes.push_back(fmt::format("gl_floor({})", x));
        break;
      case ir::UnaryOp::ceil:
        out.lanes.push_back(fmt::format("gl_ceil({})", x));
        break;
      case ir::UnaryOp::trunc:
        out.lanes.push_back(fmt::format("gl_trunc({})", x));
        break;
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
  const bool narrow = is_i64 && a.narrow && b.narrow && !comparison && n.op != ir::BinaryOp::shl &&
                      n.op != ir::BinaryOp::shr && fits_int(self);
  bool plain = floating || comparison || bits || (is_i64 && range.min && range.max);
  if (division) {
    const ir::Range dividend = ranges_.of(n.a), divisor = ranges_.of(n.b);
    plain = dividend.min && *dividend.min >= 0 && divisor.min && *divisor.min > 0;
  }
  // Power-of-two divisor: an arithmetic shift rounds towards minus infinity and a mask yields the floor remainder, for
  // either sign of the dividend.
  if (const uint64_t divisor = division ? power_of_two(n.b) : 0) {
    Text out{.narrow = narrow};
    for (const std::string& x : a.lanes) {
      const std::string dividend = fmt::format("{}{}", a.narrow && !narrow ? "(long long)" : "", parenthesised(x));
      const std::string body = n.op == ir::BinaryOp::floor_div
                                   ? fmt::format("{} >> {}", dividend, std::countr_zero(divisor))
                                   : fmt::format("{} & {}", dividend, c_constant(dtype, divisor - 1));
      out.lanes.push_back(size_of(dtype) < 4 ? fmt::format("({})({})", c_type(dtype), body) : body);
    }
    return out;
  }
  if (n.op == ir::BinaryOp::shr) plain = true;
  if (minmax || n.op == ir::BinaryOp::shl) plain = false;
  const bool relied = n.op == ir::BinaryOp::add || n.op == ir::BinaryOp::sub || n.op == ir::BinaryOp::mul;
  const int precedence = relied ? ir::info_of(n.op).precedence : 0;
  // Sums and products rely on C++ precedence; other operators get parentheses. An operation on two ints would be
  // computed in int, so one operand is widened; a shift has the type of its left operand.
  const bool widened = is_i64 && !narrow && !comparison && a.narrow && (b.narrow || n.op == ir::BinaryOp::shr);
  const auto operand = [&](const Text& t, size_t lane, bool right) {
    const std::string& x = t.lanes[lane];
    if (widened && !right) return "(long long)" + parenthesised(x);
    if (!plain) return x;
    const bool binds = precedence && t.precedence && (right ? t.precedence > precedence : t.precedence >= precedence);
    return binds || (comparison && t.precedence) ? x : parenthesised(x);
  };
  Text out{.narrow = narrow, .precedence = plain ? precedence : 0};
  for (size_t lane = 0; lane < a.lanes.size(); ++lane) {
    const std::string x = operand(a, lane, false), y = operand(b, lane, true);
    if (plain) {
      const std::string body = fmt::format("{} {} {}", x, symbol(n.op), y);
      // C++ promotes operands narrower than int, so the result is truncated.
      const bool cut = !comparison && !floating && type.dtype != DType::boolean && size_of(dtype) < 4;
      out.lanes.push_back(cut ? fmt::format("({})({})", c_type(dtype), body) : body);
      if (!comparison && type.dtype == DType::boolean) out.lanes.back() = fmt::format("(bool)({})", body);
    } else {
      const std::string of = floating ? "" : fmt::format("<{}>", narrow ? "int" : c_type(dtype));
      out.lanes.push_back(fmt::format("gl_{}{}({}, {})", to_string(n.op), of, x, y));
    }
  }
  return out;
}

Text FunctionEmitter::node(const ir::Fma& n, Type, const ir::Expr&) {
  const Text a = value(n.a), b = value(n.b), c = value(n.c);
  Text out;
  for (size_t i = 0; i < a.lanes.size(); ++i)
    out.lanes.push_back(fmt::format("gl_fma({}, {}, {})", a.lanes[i], b.lanes[i], c.lanes[i]));
  return out;
}

Text FunctionEmitter::node(const ir::Select& n, Type type, const ir::Expr&) {
  const Text condition = value(n.condition), a = value(n.a), b = value(n.b);
  Text out{.narrow = type.dtype == DType::i64 && a.narrow && b.narrow};
  for (size_t i = 0; i < a.lanes.size(); ++i)
    out.lanes.push_back(fmt::format("({} ? {} : {})", condition.lanes[condition.lanes.size() == 1 ? 0 : i],
                                    parenthesised(a.lanes[i]), parenthesised(b.lanes[i])));
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
    } else if (const std::optional<int64_t> from = ir::as_int(n.base); narrow && step && from) {
      out.lanes.push_back(std::to_string(*from + *step * i));
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
  const auto lane = [&](const Text& t, size_t i) {
    return i64 && t.narrow && !out.narrow ? "(long long)" + parenthesised(t.lanes[i]) : t.lanes[i];
  };
  for (const int l : n.lanes) {
    const auto i = static_cast<size_t>(l);
    out.lanes.push_back(i < a.lanes.size() ? lane(a, i) : lane(b, i - a.lanes.size()));
  }
  return out;
}

Text FunctionEmitter::node(const ir::Intrinsic& n, Type, const ir::Expr&) {
  switch (n.op) {
    case ir::IntrinsicOp::prefetch:
      return {{"false"}, false, true};
    case ir::IntrinsicOp::all:
    case ir::IntrinsicOp::any: {
      const Text a = value(n.args[0]);
      std::string text;
      for (const std::string& x : a.lanes)
        text += (text.empty() ? "" : n.op == ir::IntrinsicOp::all ? " & " : " | ") + ("(int)" + parenthesised(x));
      return {{"((" + text + ") != 0)"}};
    }
  }
  throw Error(ErrorCode::internal, "emit_cuda: an unknown intrinsic");
}

Text FunctionEmitter::node(const ir::Math& n, Type, const ir::Expr&) {
  throw Error(ErrorCode::internal, fmt::format("emit: {} is not expanded", to_string(n.op)));
}

}  // namespace gradloom::codegen
