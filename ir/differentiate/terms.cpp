#include "ir/differentiate/terms.h"

#include "ir/wrappers.h"

namespace gradloom::ir {
namespace {

void find_terms(const Stmt& s, const Buffer& sums, Accesses& accesses, std::vector<Enclosing>& path,
                std::vector<Term>& terms) {
  if (!accesses.writes(s, sums)) return;
  const auto below = [&](const Stmt& body, bool otherwise = false) {
    path.push_back({s, otherwise});
    find_terms(body, sums, accesses, path, terms);
    path.pop_back();
  };
  if (const Block* n = s.as<Block>()) {
    for (const Stmt& part : n->stmts) find_terms(part, sums, accesses, path, terms);
  } else if (const If* n = s.as<If>()) {
    below(n->then_case), below(n->else_case, true);
  } else if (is_wrapper(s)) {
    below(body_of(s));
  } else if (const Accumulate* n = s.as<Accumulate>(); n && n->buffer.same_as(sums)) {
    size_t first = 0;
    while (first < path.size() && !path[first].stmt.as<For>()) ++first;
    terms.push_back({path, first, s});
  }
}

}  // namespace

bool is_empty(const Stmt& s) { return !s || (s.as<Block>() && s.as<Block>()->stmts.empty()); }
bool is_idle(const Stmt& s) {
  if (const If* n = s.as<If>()) return is_empty(n->then_case) && is_empty(n->else_case);
  return is_wrapper(s) && is_empty(body_of(s));
}

std::vector<Term> terms_of(const std::vector<Stmt>& scope, const Buffer& sums, Accesses& accesses) {
  std::vector<Term> terms;
  std::vector<Enclosing> path;
  for (const Stmt& s : scope) find_terms(s, sums, accesses, path, terms);
  return terms;
}

Stmt ReplaceTerms::of(const Stmt& s) {
  if (!accesses_.writes(s, sums_)) return s;
  if (dropped.contains(s.get())) return placed(s, block({}));
  const Stmt now = (*this)(s);
  return placed(s, is_idle(now) ? block({}) : now);
}

std::vector<Stmt> ReplaceTerms::of(std::vector<Stmt> scope) {
  for (Stmt& s : scope) s = of(s);
  return scope;
}

Stmt ReplaceTerms::placed(const Stmt& was, const Stmt& now) const {
  return was.get() == place ? block({now, after}) : now;
}

Stmt ReplaceTerms::rewrite(const Block& n, const Stmt&) { return block(of(n.stmts)); }
Stmt ReplaceTerms::rewrite(const For& n, const Stmt&) { return for_loop(n.var, n.begin, n.extent, n.kind, of(n.body)); }
Stmt ReplaceTerms::rewrite(const Let& n, const Stmt&) {
  const Stmt body = of(n.body);
  return accesses_.mentions(body, n.var) ? let(n.var, n.value, body) : body;
}
Stmt ReplaceTerms::rewrite(const Alloc& n, const Stmt&) { return alloc(n.buffer, of(n.body)); }
Stmt ReplaceTerms::rewrite(const Check& n, const Stmt&) {
  return check(n.condition, n.position, n.argument, of(n.body));
}
Stmt ReplaceTerms::rewrite(const If& n, const Stmt&) {
  const Stmt other = n.else_case ? of(n.else_case) : Stmt();
  return if_then(n.condition, of(n.then_case), other);
}

}  // namespace gradloom::ir
