#include "ir/differentiate/adjoint_last.h"

#include <algorithm>

#include "ir/rewrite.h"

namespace gradloom::ir {
namespace {

struct NotProportional {};

class AdjointLast : public Rewriter {
 public:
  explicit AdjointLast(const std::vector<Buffer>& adjoints) : adjoints_(adjoints) {}

 private:
  using Rewriter::rewrite;

  bool is_adjoint(const Expr& e) const {
    const Load* l = e.as<Load>();
    if (const Cast* c = e.as<Cast>()) l = c->value.as<Load>();
    return l && !l->guard &&
           std::any_of(adjoints_.begin(), adjoints_.end(), [&](const Buffer& b) { return b.same_as(l->buffer); });
  }
  bool depends(const Expr& e) const {
    return any_of(e, [&](const Expr& part) {
      const Load* l = part.as<Load>();
      const Var* v = part.as<Var>();
      return (v && factors_.contains(v->id)) ||
             (l &&
              std::any_of(adjoints_.begin(), adjoints_.end(), [&](const Buffer& b) { return b.same_as(l->buffer); }));
    });
  }

  // What the adjoint's element is multiplied by to give e; e depends on it. Variables of such values stand for their
  // factors.
  Expr factor(const Expr& e) {
    if (is_adjoint(e)) {
      if (adjoint_ && !equal(adjoint_, e)) throw NotProportional{};
      adjoint_ = e;
      return constant(e.dtype(), 1);
    }
    if (const Var* v = e.as<Var>()) return factors_.at(v->id);
    if (const Unary* u = e.as<Unary>(); u && u->op == UnaryOp::neg) return -factor(u->a);
    if (const Binary* n = e.as<Binary>()) {
      const bool a = depends(n->a), b = depends(n->b);
      if ((n->op == BinaryOp::add || n->op == BinaryOp::sub) && a && b)
        return binary(n->op, factor(n->a), factor(n->b));
      if (n->op == BinaryOp::mul && a != b) return a ? times(factor(n->a), n->b) : times(factor(n->b), n->a);
      if (n->op == BinaryOp::div && a && !b) return factor(n->a) / n->b;
    }
    if (const Fma* n = e.as<Fma>(); n && depends(n->c) && depends(n->a) != depends(n->b))
      return depends(n->a) ? fma(factor(n->a), n->b, factor(n->c)) : fma(n->a, factor(n->b), factor(n->c));
    throw NotProportional{};
  }
  static bool is_one(const Expr& e) { return equal(e, constant(e.dtype(), 1)); }
  static Expr times(const Expr& a, const Expr& b) { return is_one(a) ? b : a * b; }

  Stmt rewrite(const Let& n, const Stmt& self) override {
    if (!depends(n.value)) return Rewriter::rewrite(n, self);
    const Expr value = factor(n.value);
    factors_[n.var.id] = is_one(value) ? value : var(n.var);
    const Stmt inner = (*this)(n.body);
    return is_one(value) ? inner : let(n.var, value, inner);
  }
  Stmt rewrite(const Store& n, const Stmt& self) override {
    if (!depends(n.value)) return self;
    const Cast* rounded = is_adjoint(n.value) ? nullptr : n.value.as<Cast>();
    const Expr f = factor(rounded ? rounded->value : n.value), value = is_one(f) ? adjoint_ : adjoint_ * f;
    return store(n.buffer, n.index, rounded ? cast(n.value.dtype(), value) : value, n.guard);
  }

  const std::vector<Buffer>& adjoints_;
  Expr adjoint_;          // the one element, as read
  Substitution factors_;  // of the variables that depend on it
};

bool is_straight(const Stmt& s) { return s.as<For>() || s.as<Block>() || s.as<Let>() || s.as<Store>(); }

}  // namespace

Stmt adjoint_last(const Stmt& body, const std::vector<Buffer>& adjoints) try {
  if (any_of(body, [](const Stmt& s) { return !is_straight(s); })) return body;
  return AdjointLast(adjoints)(body);
} catch (const NotProportional&) {
  return body;
}

}  // namespace gradloom::ir
