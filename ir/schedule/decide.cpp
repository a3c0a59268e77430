#include "ir/schedule/decide.h"

#include "ir/index_math.h"
#include "ir/rewrite.h"

namespace gradloom::ir {
namespace {

class Fold : public Rewriter {
 public:
  explicit Fold(const Ranges& known) : known_(known) {}
  using Rewriter::operator();

 private:
  using Rewriter::rewrite;
  Stmt rewrite(const If& n, const Stmt& self) override {
    const Expr left = undecided(n.condition);
    if (const std::optional<bool> decided = constant(left)) {
      const Stmt taken = *decided ? n.then_case : n.else_case;
      return taken ? (*this)(taken) : block({});
    }
    if (left.same_as(n.condition)) return Rewriter::rewrite(n, self);
    return if_then(left, (*this)(n.then_case), n.else_case ? (*this)(n.else_case) : Stmt());
  }
  Expr rewrite(const Select& n, const Expr& self) override {
    const Expr left = undecided(n.condition);
    if (const std::optional<bool> decided = constant(left)) return (*this)(*decided ? n.a : n.b);
    return left.same_as(n.condition) ? Rewriter::rewrite(n, self) : select(left, (*this)(n.a), (*this)(n.b));
  }
  Expr rewrite(const Load& n, const Expr& self) override {
    if (!n.guard) return Rewriter::rewrite(n, self);
    const Expr left = undecided(n.guard);
    bool changed = false;
    if (const std::optional<bool> decided = constant(left))
      return *decided ? load(n.buffer, list(n.index, changed)) : (*this)(n.otherwise);
    if (left.same_as(n.guard)) return Rewriter::rewrite(n, self);
    return load(n.buffer, list(n.index, changed), left, (*this)(n.otherwise));
  }
  Stmt rewrite(const Store& n, const Stmt& self) override {
    if (!n.guard) return Rewriter::rewrite(n, self);
    const Expr left = undecided(n.guard);
    const std::optional<bool> decided = constant(left);
    if (decided && !*decided) return block({});
    if (left.same_as(n.guard)) return Rewriter::rewrite(n, self);
    bool changed = false;
    return store(n.buffer, list(n.index, changed), (*this)(n.value), decided ? Expr() : left, n.streaming, n.ordered);
  }
  // Where all terms of x but a constant are multiples of c, floor_div(x, c) is a sum of them.
  Expr rewrite(const Binary& n, const Expr& self) override {
    if (n.op != BinaryOp::floor_div) return Rewriter::rewrite(n, self);
    std::optional<Linear> x = multiples(n.a, n.b);
    if (!x) return Rewriter::rewrite(n, self);
    const int64_t c = *as_int(n.b);
    x->constant = (x->constant - remainder_of(x->constant, c)) / c;
    for (auto& [term, coefficient] : x->terms) coefficient /= c;
    return to_expr(*x);
  }

  static std::optional<bool> constant(const Expr& condition) {
    const Const* c = condition.as<Const>();
    return c ? std::optional(c->bits != 0) : std::nullopt;
  }

  // What of a condition is not decided: a constant if all is.
  Expr undecided(const Expr& condition) const {
    if (condition.lanes() > 1) return condition;
    if (const std::optional<bool> decided = known_.proves(condition))
      return constant_int(DType::boolean, *decided);
    const Binary* n = condition.as<Binary>();
    if (!n) return condition;
    if (n->op == BinaryOp::bit_and) {
      const Expr a = undecided(n->a), b = undecided(n->b);
      for (const auto& [one, other] : {std::pair(a, b), std::pair(b, a)})
        if (const std::optional<bool> decided = constant(one)) return *decided ? other : one;
      return a.same_as(n->a) && b.same_as(n->b) ? condition : a & b;
    }
    if (n->op == BinaryOp::eq)
      if (const std::optional<int64_t> rest = remainder(n->a), wanted = as_int(n->b); rest && wanted)
        return constant_int(DType::boolean, *rest == *wanted);
    return condition;
  }

  // The value of floor_mod(x, c), where all terms of x but a constant are multiples of c.
  std::optional<int64_t> remainder(const Expr& e) const {
    const Binary* mod = e.as<Binary>();
    if (!mod || mod->op != BinaryOp::floor_mod) return std::nullopt;
    const std::optional<Linear> x = multiples(mod->a, mod->b);
    return x ? std::optional(remainder_of(x->constant, *as_int(mod->b))) : std::nullopt;
  }
  static int64_t remainder_of(int64_t x, int64_t c) { return (x % c + c) % c; }

  // x as a sum of terms that are multiples of c, a constant above 1, and of a constant.
  std::optional<Linear> multiples(const Expr& x, const Expr& c) const {
    const std::optional<int64_t> by = as_int(c);
    if (!by || *by < 2 || *by > max_elements || x.type() != Type{}) return std::nullopt;
    Linear l = known_.form(x);
    if (!l.exact || l.constant == INT64_MIN) return std::nullopt;
    for (const auto& [term, coefficient] : l.terms)
      if (coefficient % *by != 0) return std::nullopt;
    return l;
  }

  const Ranges& known_;
};

}  // namespace

Stmt fold_decided(const Stmt& body, const Ranges& known) { return Fold(known)(body); }

}  // namespace gradloom::ir
