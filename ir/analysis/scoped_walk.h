#pragma once
// Walks statements with the facts known at each of them, from the enclosing loops, lets, conditions and checks.
#include <utility>

#include "ir/analysis/ranges.h"

namespace gradloom::ir {

// `Derived` overloads visit(const Node&, const Stmt& self) for each kind of statement it handles, and calls below(node)
// in it to visit the statements inside; all others are only traversed.
template <class Derived>
class ScopedWalk {
 public:
  void operator()(const Stmt& s) {
    if (s) std::visit([&](const auto& n) { static_cast<Derived*>(this)->visit(n, s); }, s.node().value);
  }

 protected:
  explicit ScopedWalk(Ranges scope) : scope_(std::move(scope)) {}

  template <class Node>
  void visit(const Node& n, const Stmt&) {
    below(n);
  }
  void below(const For& n) { within(n.body, n); }
  void below(const Let& n) { within(n.body, n); }
  void below(const Check& n) { within(n.body, n.condition); }
  void below(const If& n) {
    within(n.then_case, n.condition);
    within(n.else_case, n.condition, false);
  }
  void below(const Block& n) {
    for (const Stmt& s : n.stmts) (*this)(s);
  }
  void below(const Alloc& n) { (*this)(n.body); }
  void below(const Store&) {}
  void below(const Accumulate&) {}
  void below(const Reduce&) {}
  void below(const Evaluate&) {}
  void below(const Barrier&) {}

  template <class... Known>
  void within(const Stmt& s, const Known&... known) {
    if (!s) return;
    const Ranges::Scope inner(scope_, known...);
    (*this)(s);
  }

  Ranges scope_;
};

}  // namespace gradloom::ir
