// A value for a buffer's elements, from its text.
#include "gradloom/text.h"
#include "ir/children.h"
#include "ir/text/parser.h"
#include "support/float_mode.h"

namespace gradloom::ir {
namespace {

// Where buffers of a name are allocated: the variables and buffers around each.
struct Allocations {
  struct Found {
    Buffer buffer;
    std::vector<std::pair<Var, Buffer>> around;  // one of the two each, outermost first
  };

  explicit Allocations(std::string wanted) : name(std::move(wanted)) {}
  void operator()(const Expr&) {}
  void operator()(const Stmt& s) {
    if (!s) return;
    const size_t outer = around.size();
    if (const For* loop = s.as<For>()) around.push_back({loop->var, {}});
    if (const Let* l = s.as<Let>()) around.push_back({l->var, {}});
    if (const Alloc* a = s.as<Alloc>()) {
      if (a->buffer->name == name) found.push_back({a->buffer, around});
      around.push_back({Var(), a->buffer});
    }
    std::visit([&](const auto& node) { Children{[&](const auto& part) { (*this)(part); }}(node); }, s.node().value);
    around.resize(outer);
  }

  const std::string name;
  std::vector<std::pair<Var, Buffer>> around;
  std::vector<Found> found;
};

}  // namespace

// NAME[INDEX, ...] = VALUE; each index is a name of its own, or 0 where there is one element.
ElementValue Parser::element_value(const Kernel& kernel) {
  const Token of = name("a buffer's name");
  Allocations allocations(of.text);
  for (const Buffer& b : kernel.buffers)
    if (b->role == Role::in && b->name == of.text) allocations.found.push_back({b, {}});
  allocations(kernel.body);
  if (allocations.found.size() != 1 || !of.suffix.empty())
    fail_at(of.at, "expected an input or a buffer that the nest allocates, of that name alone, got " + of.text);
  const auto& [buffer, around] = allocations.found[0];
  const auto symbol = [&](const std::string& text, const Var& v, const Buffer& b) {
    bind({.kind = TokenKind::name, .text = text, .at = of.at}, v, b);
  };
  for (const Scalar& s : kernel.scalars) symbol(s.var.name, s.var, {});
  for (const Buffer& b : kernel.buffers) symbol(b->name, {}, b);
  for (const auto& [v, b] : around) symbol(b ? b->name : v.name, v, b);
  ElementValue element{.buffer = buffer};
  expect_symbol("[");
  for (size_t d = 0; d < buffer->dims.size(); ++d) {
    if (d > 0) expect_symbol(",");
    const bool only = is_const(buffer->dims[d], 1) && peek().kind == TokenKind::number && peek().text == "0";
    const Token token = only ? next() : name("a name for the index");
    element.index.push_back(make_var(only ? "zero" : token.text));
    if (!only) bind(token, element.index.back(), {});
  }
  expect_symbol("]");
  expect_symbol("=");
  const Position at = peek().at;
  element.value = expr();
  if (element.value.type() != Type{buffer->dtype, 1})
    fail_at(at, "expected a value of type " + std::string(to_string(buffer->dtype)) + ", got " +
                    to_string(element.value.type()));
  if (peek().kind != TokenKind::end) expected("the end of the text");
  return element;
}

ElementValue parse_element_value(const Kernel& kernel, std::string_view text) {
  const FloatMode mode;  // as in parse
  return Parser(text).element_value(kernel);
}

}  // namespace gradloom::ir
