// Expressions of the text form.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <optional>

#include "ir/operators.h"
#include "ir/scalar_math.h"
#include "ir/text/parser.h"

namespace gradloom::ir {
namespace {

const BinaryInfo* infix_of(const Token& token) {
  if (token.kind != TokenKind::symbol) return nullptr;
  for (const BinaryInfo& infix : binary_infos)
    if (infix.symbol && infix.symbol == token.text) return &infix;
  return nullptr;
}

std::optional<UnaryOp> unary_function(std::string_view name) {
  for (UnaryOp op : {UnaryOp::abs, UnaryOp::sqrt, UnaryOp::floor, UnaryOp::ceil, UnaryOp::trunc})
    if (name == to_string(op)) return op;
  return std::nullopt;
}

std::optional<MathOp> math_function(std::string_view name) {
  for (MathOp op : all_math_ops)
    if (name == to_string(op)) return op;
  return std::nullopt;
}

std::optional<BinaryOp> binary_function(std::string_view name) {
  for (const BinaryInfo& info : binary_infos)
    if (!info.symbol && name == info.name) return info.op;
  return std::nullopt;
}

int bits_of(DType dtype) { return 8 * size_of(dtype); }

}  // namespace

Parser::Term Parser::grow(Position at, Expr e, std::initializer_list<int> depths) const {
  const int depth = 1 + std::max(depths);
  if (depth + depth_ > max_depth) fail_at(at, "expected at most " + std::to_string(max_depth) + " levels of nesting");
  return {std::move(e), depth};
}

Parser::Term Parser::term(int least) {
  Level level(*this);
  Term left = prefix();
  int ceiling = std::numeric_limits<int>::max();  // comparisons do not chain
  for (;;) {
    const BinaryInfo* infix = infix_of(peek());
    if (!infix || infix->precedence < least) return left;
    if (infix->precedence >= ceiling) expected("parentheses around one of two comparisons");
    const Position at = next().at;
    Term right = term(infix->precedence + 1);
    left = grow(at, built(at, [&] { return binary(infix->op, left.e, right.e); }), {left.depth, right.depth});
    if (infix->precedence == precedence::comparison) ceiling = precedence::comparison;
    if (infix->precedence < precedence::comparison) ceiling = std::numeric_limits<int>::max();
  }
}

Parser::Term Parser::prefix() {
  const Token& token = peek();
  const bool minus = at_symbol("-");
  if (!minus && !at_symbol("~")) return primary();
  Level level(*this);
  next();
  if (minus && peek().kind == TokenKind::number) return {number(true)};
  if (minus && peek().is(TokenKind::name, "inf") && at_symbol("(", 1)) return {infinity(true)};
  Term operand = prefix();
  const UnaryOp op = minus ? UnaryOp::neg : UnaryOp::bit_not;
  return grow(token.at, built(token.at, [&] { return unary(op, operand.e); }), {operand.depth});
}

Parser::Term Parser::primary() {
  const Token& token = peek();
  if (token.kind == TokenKind::number) return {number(false)};
  if (at_keyword("true") || at_keyword("false")) return {constant_bits(DType::boolean, next().text == "true")};
  if (take_symbol("(")) {
    Term inner = term();
    expect_symbol(")");
    return inner;
  }
  if (token.kind != TokenKind::name) expected("an expression");
  if (at_symbol("(", 1)) return call();
  if (at_symbol("[", 1)) {
    Access a = access(true);
    return grow(token.at, built(token.at, [&] { return load(a.buffer, a.index, a.guard, a.otherwise); }), {a.depth});
  }
  const Symbol& symbol = find(token);
  if (symbol.buffer) fail_at(token.at, "expected an index after the buffer " + describe(token));
  next();
  return {var(symbol.var)};
}

Parser::Term Parser::call() {
  const Token function = next();
  const std::string& f = function.text;
  const auto make = [&](auto&& node, std::initializer_list<int> depths) {
    return grow(function.at, built(function.at, node), depths);
  };
  const auto comma = [&] { expect_symbol(","); };
  const auto lanes = [&] { return comma(), static_cast<int>(integer("a number of lanes from 2 to 4096", 2, 4096)); };
  if (f == "inf") {
    --pos_;
    return {infinity(false)};
  }
  expect_symbol("(");
  Term result;
  if (f == "bits") {
    const DType t = dtype("a dtype");
    comma();
    const Token& token = next();
    uint64_t bits = 0;
    const char *first = token.text.data() + 2, *last = token.text.data() + token.text.size();
    const bool hex = token.kind == TokenKind::number && token.text.starts_with("0x");
    if (!hex || std::from_chars(first, last, bits, 16).ec != std::errc() || (bits_of(t) < 64 && bits >> bits_of(t)))
      fail_at(token.at, std::string("expected the bits of one ") + to_string(t) + " as 0x..., got " + describe(token));
    result = {constant_bits(t, bits)};
  } else if (f == "bitcast") {
    const DType t = dtype("a dtype");
    comma();
    Term a = term();
    result = make([&] { return bitcast(t, a.e); }, {a.depth});
  } else if (f == "ramp") {
    Term base = term();
    comma();
    Term stride = term();
    const int n = lanes();
    result = make([&] { return ramp(base.e, stride.e, n); }, {base.depth, stride.depth});
  } else if (f == "broadcast") {
    Term a = term();
    const int n = lanes();
    result = make([&] { return broadcast(a.e, n); }, {a.depth});
  } else if (f == "shuffle") {
    Term a = term(), b{{}, 0};
    comma();
    if (!at_symbol("[")) b = term(), comma();
    expect_symbol("[");
    std::vector<int> order;
    do order.push_back(static_cast<int>(integer("a lane", 0, 8192)));
    while (take_symbol(","));
    expect_symbol("]");
    if (order.size() > 4096) fail_at(function.at, "expected at most 4096 lanes");
    result = make([&] { return shuffle(a.e, b.e, std::move(order)); }, {a.depth, b.depth});
  } else if (f == "prefetch") {
    Access a = access(false);
    comma();
    const int cache = static_cast<int>(integer("a cache level from 1 to 3", 1, 3));
    result = make([&] { return prefetch(a.buffer, a.index, cache); }, {a.depth});
  } else if (f == "fma" || f == "select") {
    Term a = term();
    comma();
    Term b = term();
    comma();
    Term c = term();
    result = make([&] { return f == "fma" ? fma(a.e, b.e, c.e) : select(a.e, b.e, c.e); }, {a.depth, b.depth, c.depth});
  } else if (f == "pow") {
    Term a = term();
    comma();
    const Position at = peek().at;
    const Expr exponent = term().e;
    const Const* n = exponent.as<Const>();
    if (!n || exponent.dtype() != a.e.dtype()) fail_at(at, "expected a constant exponent of the dtype of its base");
    result = make([&] { return power(a.e, double_from_bits(exponent.dtype(), n->bits)); }, {a.depth});
  } else if (const auto op = binary_function(f)) {
    Term a = term();
    comma();
    Term b = term();
    result = make([&] { return binary(*op, a.e, b.e); }, {a.depth, b.depth});
  } else {
    const auto unary_op = unary_function(f);
    const auto math_op = math_function(f);
    const auto to = dtype_from_string(f);
    if (!unary_op && !math_op && !to && f != "all" && f != "any")
      fail_at(function.at, "expected a function, got " + describe(function));
    Term a = term();
    result = make(
        [&] {
          if (math_op) return math(*math_op, a.e);
          return unary_op ? unary(*unary_op, a.e) : to ? cast(*to, a.e) : f == "all" ? all_lanes(a.e) : any_lane(a.e);
        },
        {a.depth});
  }
  expect_symbol(")");
  return result;
}

// buffer[index, ...] or, for a load, buffer[index, ... where guard else otherwise].
Parser::Access Parser::access(bool guard_allowed) {
  Access result;
  const auto add = [&] {
    Term t = term();
    result.depth = std::max(result.depth, t.depth);
    return t.e;
  };
  result.buffer = buffer_name();
  expect_symbol("[");
  if (!at_symbol("]") && !at_keyword("where")) {
    do result.index.push_back(add());
    while (take_symbol(","));
  }
  if (guard_allowed && take_keyword("where")) {
    result.guard = add();
    if (take_keyword("else")) result.otherwise = add();
  }
  expect_symbol("]");
  return result;
}

std::vector<Expr> Parser::list(std::string_view close) {
  std::vector<Expr> result;
  if (take_symbol(close)) return result;
  do result.push_back(expr());
  while (take_symbol(","));
  expect_symbol(close);
  return result;
}

Expr Parser::infinity(bool negative) {
  next();
  expect_symbol("(");
  const Position at = peek().at;
  const DType t = dtype("a float dtype");
  if (!is_float(t)) fail_at(at, std::string("expected a float dtype, got ") + to_string(t));
  expect_symbol(")");
  return constant(t, negative ? -INFINITY : INFINITY);
}

// An integer is an i64 when it names no dtype; a float always names its own.
Expr Parser::number(bool negative) {
  const Token& token = next();
  const auto refuse = [&](const std::string& what) {
    fail_at(token.at, "expected " + what + ", got " + (negative ? "-" : "") + describe(token));
  };
  const bool integral = token.text.find_first_of(".ex") == std::string::npos;
  std::optional<DType> t =
      token.suffix.empty() && integral ? std::optional(DType::i64) : dtype_from_string(token.suffix);
  if (token.text.starts_with("0x")) refuse("a decimal number (hexadecimal: bits(dtype, 0x...))");
  if (!t || *t == DType::boolean) refuse("a number followed by its dtype, as in 1.5f32");
  const char *first = token.text.data(), *last = first + token.text.size();
  if (is_float(*t)) {
    double value = 0;
    float narrow = 0;
    // An f32 is rounded once, from the decimal.
    const auto error =
        *t == DType::f32 ? std::from_chars(first, last, narrow).ec : std::from_chars(first, last, value).ec;
    if (*t == DType::f32) value = narrow;
    const uint64_t bits = bits_from_double(*t, negative ? -value : value);
    if (error != std::errc() || std::isinf(double_from_bits(*t, bits)))
      refuse(std::string("a number in the range of ") + to_string(*t));
    return constant_bits(*t, bits);
  }
  uint64_t magnitude = 0;
  if (!integral) refuse(std::string("an integer for ") + to_string(*t));
  const bool fits = std::from_chars(first, last, magnitude).ec == std::errc();
  const uint64_t top = uint64_t{1} << (bits_of(*t) - 1);
  const uint64_t limit = negative ? (is_signed_int(*t) ? top : 0) : (is_signed_int(*t) ? top - 1 : top - 1 + top);
  if (!fits || magnitude > limit) refuse(std::string("a number in the range of ") + to_string(*t));
  return constant_int(*t, static_cast<int64_t>(negative ? uint64_t{0} - magnitude : magnitude));
}

}  // namespace gradloom::ir
