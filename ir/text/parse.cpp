// Statements and kernels of the text form. The grammar is in README.md.
#include <algorithm>
#include <charconv>
#include <limits>

#include "gradloom/text.h"
#include "ir/text/parser.h"
#include "support/float_mode.h"

namespace gradloom::ir {

Parser::Level::Level(Parser& parser) : parser_(parser) {
  if (parser.depth_ >= max_depth)
    fail_at(parser.peek().at, "expected at most " + std::to_string(max_depth) + " levels of nesting");
  ++parser.depth_;
}

bool Parser::take_symbol(std::string_view text) {
  if (!at_symbol(text)) return false;
  next();
  return true;
}

bool Parser::take_keyword(std::string_view text) {
  if (!at_keyword(text)) return false;
  next();
  return true;
}

void Parser::expect_symbol(std::string_view text) {
  if (!take_symbol(text)) expected(std::string(text));
}

void Parser::expect_keyword(std::string_view text) {
  if (!take_keyword(text)) expected(std::string(text));
}

void Parser::expected(const std::string& what) const {
  fail_at(peek().at, "expected " + what + ", got " + describe(peek()));
}

int64_t Parser::integer(const std::string& what, int64_t min, int64_t max) {
  const Token& token = peek();
  int64_t value = 0;
  const char *first = token.text.data(), *last = first + token.text.size();
  const bool number = token.kind == TokenKind::number && token.suffix.empty();
  if (!number || std::from_chars(first, last, value).ptr != last || value < min || value > max) expected(what);
  next();
  return value;
}

Token Parser::name(const std::string& what) {
  if (peek().kind != TokenKind::name) expected(what);
  return next();
}

void Parser::bind(const Token& name, Var var, Buffer buffer) {
  if (symbols_.size() >= max_bindings)
    fail_at(name.at, "expected at most " + std::to_string(max_bindings) + " names in scope");
  symbols_.push_back({name.text, name.suffix, std::move(var), std::move(buffer)});
}

// The innermost binding of this name with this suffix.
const Parser::Symbol& Parser::find(const Token& name) const {
  const auto found = std::find_if(symbols_.rbegin(), symbols_.rend(),
                                  [&](const Symbol& s) { return s.name == name.text && s.suffix == name.suffix; });
  if (found == symbols_.rend()) fail_at(name.at, "expected a name in scope, got " + describe(name));
  return *found;
}

Buffer Parser::buffer_name() {
  const Token token = name("a buffer's name");
  const Symbol& symbol = find(token);
  if (!symbol.buffer) fail_at(token.at, "expected a buffer, got the variable " + describe(token));
  return symbol.buffer;
}

DType Parser::dtype(const std::string& what) {
  const auto found =
      peek().kind == TokenKind::name && peek().suffix.empty() ? dtype_from_string(peek().text) : std::nullopt;
  if (!found) expected(what);
  next();
  return *found;
}

// f32 or f32x16.
Type Parser::type() {
  const Token& token = peek();
  const size_t x = token.text.rfind('x');
  int lanes = 1;
  if (token.kind != TokenKind::name || x == std::string::npos || dtype_from_string(token.text))
    return {dtype("a type"), 1};
  const char *first = token.text.data() + x + 1, *last = token.text.data() + token.text.size();
  const auto element = dtype_from_string(token.text.substr(0, x));
  if (!element || std::from_chars(first, last, lanes).ptr != last || lanes < 2 || lanes > 4096) expected("a type");
  next();
  return {*element, lanes};
}

Stmt Parser::scope() {
  expect_symbol("{");
  Stmt result = stmts();
  expect_symbol("}");
  return result;
}

// The scope of a let or an alloc is the rest of the statements, so scopes are assembled from the end.
Stmt Parser::stmts() {
  Level level(*this);
  struct Holder {
    size_t start;  // the first statement in its scope
    Position at;
    Var var;
    Expr value;
    Buffer buffer;
  };
  const size_t outer = symbols_.size();
  std::vector<Holder> holders;
  std::vector<Stmt> result;
  while (!at_symbol("}") && peek().kind != TokenKind::end) {
    Holder holder{.start = result.size(), .at = peek().at};
    if (take_keyword("let")) {
      const Token token = name("a variable's name");
      const bool typed = take_symbol(":");
      const Position type_at = peek().at;
      const Type declared = typed ? type() : Type{};
      expect_symbol("=");
      holder.value = expr();
      if (typed && holder.value.type() != declared)
        fail_at(type_at,
                "expected the value's type " + to_string(holder.value.type()) + ", got " + to_string(declared));
      holder.var = make_var(token.text, holder.value.type());
      bind(token, holder.var, {});
      holders.push_back(std::move(holder));
    } else if (take_keyword("alloc")) {
      const Token token = name("a buffer's name");
      holder.buffer = built(
          token.at, [&, node = buffer_type(token, Role::temp)]() mutable { return make_buffer(std::move(node)); });
      bind(token, {}, holder.buffer);
      holders.push_back(std::move(holder));
    } else {
      result.push_back(stmt());
    }
  }
  unbind(outer);
  for (size_t i = holders.size(); i-- > 0;) {
    const Holder& holder = holders[i];
    Stmt body = block({result.begin() + static_cast<std::ptrdiff_t>(holder.start), result.end()});
    result.resize(holder.start);
    result.push_back(built(
        holder.at, [&] { return holder.buffer ? alloc(holder.buffer, body) : let(holder.var, holder.value, body); }));
  }
  return block(std::move(result));
}

Stmt Parser::stmt() {
  if (at_symbol("{")) return scope();
  if (at_keyword("for")) return loop();
  if (at_keyword("if")) return branch();
  if (at_keyword("check")) return checked();
  const Position at = peek().at;
  if (take_keyword("evaluate")) {
    Expr value = expr();
    return built(at, [&] { return evaluate(value); });
  }
  if (take_keyword("barrier")) {
    for (const BarrierScope scope : all_barrier_scopes)
      if (peek().text == to_string(scope)) return next(), barrier(scope);
    expected("warp, block or grid");
  }
  if (peek().kind != TokenKind::name) expected("a statement");
  return write();
}

// in begin .. +extent, or in begin .. end (the extent is then end - begin, and end itself when begin is 0).
Parser::Bounds Parser::bounds(Position at) {
  expect_keyword("in");
  const Expr begin = expr();
  expect_symbol("..");
  const bool relative = take_symbol("+");
  Expr extent = expr();
  if (!relative && !is_const(begin, 0)) extent = built(at, [&] { return extent - begin; });
  return {begin, extent};
}

Stmt Parser::loop() {
  const Position at = next().at;
  const Token token = name("a loop variable's name");
  const auto [begin, extent] = bounds(at);
  ForKind kind = ForKind::serial;
  for (ForKind k : all_for_kinds)
    if (take_keyword(to_string(k))) {
      kind = k;
      break;
    }
  const Var v = make_var(token.text);
  bind(token, v, {});
  Stmt body = scope();
  unbind(symbols_.size() - 1);
  return built(at, [&] { return for_loop(v, begin, extent, kind, body); });
}

Stmt Parser::branch() {
  Level level(*this);
  const Position at = next().at;
  Expr condition = expr();
  Stmt then_case = scope(), else_case;
  if (take_keyword("else")) else_case = at_keyword("if") ? branch() : scope();
  return built(at, [&] { return if_then(condition, then_case, else_case); });
}

Stmt Parser::checked() {
  const Position at = next().at;
  Expr condition = expr();
  expect_keyword("at");
  Expr position = expr();
  if (peek().kind != TokenKind::string) expected("the argument's name in double quotes");
  std::string argument = next().text;
  Stmt body = scope();
  return built(at, [&] { return check(condition, position, argument, body); });
}

Stmt Parser::write() {
  const Position at = peek().at;
  Access target = access(false);
  const Token op = next();
  const bool add = op.is(TokenKind::symbol, "+="), multiply = op.is(TokenKind::symbol, "*=");
  const bool assign = op.is(TokenKind::symbol, "=");
  const bool named = op.kind == TokenKind::name && op.suffix.empty() &&
                     (op.text == "min" || op.text == "max" || op.text == "fma") && take_symbol("=");
  if (!add && !multiply && !assign && !named)
    fail_at(op.at, "expected =, +=, *=, min=, max= or fma=, got " + describe(op));
  if (assign && peek().kind == TokenKind::name && peek(1).kind == TokenKind::name &&
      peek(2).is(TokenKind::keyword, "in"))
    return reduction(at, std::move(target));
  Expr value, factor;
  if (op.text == "fma") {
    expect_symbol("(");
    value = expr();
    expect_symbol(",");
    factor = expr();
    expect_symbol(")");
  } else {
    value = expr();
  }
  Expr where = guard();
  if (assign) {
    const bool streaming = take_keyword("streaming"), ordered = take_keyword("ordered");
    return built(at, [&] { return store(target.buffer, target.index, value, where, streaming, ordered); });
  }
  const AccumulateOp kind = add                ? AccumulateOp::add
                            : multiply         ? AccumulateOp::mul
                            : op.text == "min" ? AccumulateOp::min
                            : op.text == "max" ? AccumulateOp::max
                                               : AccumulateOp::fma;
  const bool atomic = take_keyword("atomic"), ordered = take_keyword("ordered");
  return built(at,
               [&] { return accumulate(target.buffer, target.index, kind, value, factor, where, atomic, ordered); });
}

// After the equals sign: sum k in 0 .. n tree 256 of x[k].
Stmt Parser::reduction(Position at, Access target) {
  Reduce n{.buffer = target.buffer, .index = target.index};
  const auto word = [&](std::string_view text) { return peek().is(TokenKind::name, text) && (next(), true); };
  if (word("sum"))
    n.op = AccumulateOp::add;
  else if (word("product"))
    n.op = AccumulateOp::mul;
  else if (word("min"))
    n.op = AccumulateOp::min;
  else if (word("max"))
    n.op = AccumulateOp::max;
  else if (word("fma"))
    n.op = AccumulateOp::fma;
  else
    expected("sum, product, min, max or fma");
  const size_t outer = symbols_.size();
  do {
    const Token token = name("a variable's name");
    const auto [begin, extent] = bounds(at);
    n.ranges.push_back({make_var(token.text), begin, extent});
    bind(token, n.ranges.back().var, {});
  } while (take_symbol(","));
  if (word("tree"))
    n.order = SumOrder::in_tree(integer("the elements of a tree's block", 1, int64_t{1} << 32));
  else if (word("chunks"))
    n.order = SumOrder::in_chunks(integer("the values of a chunk", 1, int64_t{1} << 32));
  else if (word("any"))
    n.order = SumOrder::in_any();
  else if (!word("loop"))
    expected("the order: loop, any, tree and its block, or chunks and their length");
  n.guard = guard();
  if (!word("of")) expected("of");
  for (bool more = at_keyword("let"); more;) {
    expect_keyword("let");
    const Token token = name("a variable's name");
    expect_symbol(":");
    const Position type_at = peek().at;
    const Type declared = type();
    expect_symbol("=");
    const Expr value = expr();
    if (value.type() != declared)
      fail_at(type_at, "expected the value's type " + to_string(value.type()) + ", got " + to_string(declared));
    n.lets.push_back({make_var(token.text, declared), value});
    bind(token, n.lets.back().var, {});
    more = take_symbol(",");
    if (!more) expect_keyword("in");
  }
  if (n.op == AccumulateOp::fma) expect_symbol("(");
  n.value = expr();
  if (n.op == AccumulateOp::fma) {
    expect_symbol(",");
    n.factor = expr();
    expect_symbol(")");
  }
  unbind(outer);
  return built(at, [&] { return reduce(std::move(n)); });
}

// in [min, max], either side left out when it is unknown. An `in` before a name starts the next parameter.
void Parser::range(Expr& min, Expr& max) {
  if (!at_keyword("in") || !at_symbol("[", 1)) return;
  next();
  next();
  if (!at_symbol(",")) min = expr();
  expect_symbol(",");
  if (!at_symbol("]")) max = expr();
  expect_symbol("]");
}

// Parses : dtype[dims] and the buffer's declared properties.
BufferNode Parser::buffer_type(const Token& name, Role role) {
  BufferNode node{.name = name.text, .role = role};
  expect_symbol(":");
  node.dtype = dtype("a dtype");
  expect_symbol("[");
  node.dims = list("]");
  if (take_keyword("strides")) {
    expect_symbol("[");
    node.strides = list("]");
  }
  for (const Space space : {Space::registers, Space::shared, Space::per_thread, Space::per_block, Space::per_warp})
    if (take_keyword(to_string(space))) node.space = space;
  if (take_keyword("align")) node.alignment = integer("an alignment in bytes", 1, int64_t{1} << 32);
  range(node.facts.min, node.facts.max);
  node.facts.nondecreasing = take_keyword("nondecreasing");
  node.facts.injective = take_keyword("injective");
  node.facts.exclusive = take_keyword("exclusive");
  return node;
}

void Parser::scalar(Kernel& kernel) {
  const Token token = name("a scalar's name");
  expect_symbol(":");
  Scalar scalar{.var = make_var(token.text, type())};
  range(scalar.min, scalar.max);
  bind(token, scalar.var, {});
  kernel.scalars.push_back(std::move(scalar));
}

bool Parser::parameter(Kernel& kernel) {
  for (Role role : {Role::in, Role::out, Role::inout, Role::temp})
    if (take_keyword(to_string(role))) {
      const Token token = name("a buffer's name");
      Buffer buffer =
          built(token.at, [&, node = buffer_type(token, role)]() mutable { return make_buffer(std::move(node)); });
      bind(token, {}, buffer);
      kernel.buffers.push_back(std::move(buffer));
      return true;
    }
  return false;
}

Kernel Parser::kernel() {
  Kernel kernel;
  expect_keyword("kernel");
  kernel.name = name("the kernel's name").text;
  expect_symbol("(");
  if (!at_symbol(")")) {
    do scalar(kernel);
    while (take_symbol(","));
  }
  expect_symbol(")");
  expect_symbol("{");
  while (parameter(kernel)) {
  }
  kernel.body = stmts();
  expect_symbol("}");
  if (peek().kind != TokenKind::end) expected("the end of the text");
  return kernel;
}

Kernel parse(std::string_view text) {
  const FloatMode mode;  // a constant is rounded to nearest, whatever the caller's mode
  return Parser(text).kernel();
}

}  // namespace gradloom::ir
