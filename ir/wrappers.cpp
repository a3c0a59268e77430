#include "ir/wrappers.h"

#include <algorithm>

#include "ir/children.h"
#include "ir/rewrite.h"

namespace gradloom::ir {

bool is_wrapper(const Stmt& s) {
  const If* condition = s.as<If>();
  return s.as<Let>() || s.as<Alloc>() || s.as<Check>() || s.as<For>() || (condition && !condition->else_case);
}

Stmt body_of(const Stmt& s) {
  if (const Let* n = s.as<Let>()) return n->body;
  if (const Alloc* n = s.as<Alloc>()) return n->body;
  if (const Check* n = s.as<Check>()) return n->body;
  if (const For* n = s.as<For>()) return n->body;
  return s.as<If>()->then_case;
}

Stmt with_body(const Stmt& s, const Stmt& body) {
  if (const Let* n = s.as<Let>()) return let(n->var, n->value, body);
  if (const Alloc* n = s.as<Alloc>()) return alloc(n->buffer, body);
  if (const Check* n = s.as<Check>()) return check(n->condition, n->position, n->argument, body);
  if (const For* n = s.as<For>()) return for_loop(n->var, n->begin, n->extent, n->kind, body);
  return if_then(s.as<If>()->condition, body);
}

Stmt wrapped(const std::vector<Stmt>& wrappers, Stmt body) {
  for (size_t i = wrappers.size(); i-- > 0;) body = with_body(wrappers[i], body);
  return body;
}

std::vector<Expr> own_exprs(const Stmt& wrapper) {
  std::vector<Expr> exprs;
  const Children own{[&](const auto& part) {
    if constexpr (std::is_same_v<std::decay_t<decltype(part)>, Expr>)
      if (part) exprs.push_back(part);
  }};
  std::visit(own, wrapper.node().value);
  return exprs;
}

bool any_of_own(const Stmt& wrapper, const std::function<bool(const Expr&)>& predicate) {
  const std::vector<Expr> exprs = own_exprs(wrapper);
  return std::any_of(exprs.begin(), exprs.end(), [&](const Expr& e) { return any_of(e, predicate); });
}

}  // namespace gradloom::ir
