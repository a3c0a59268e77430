#include "ir/expand_math.h"

#include <utility>

#include "gradloom/math.h"
#include "ir/children.h"
#include "ir/index_math.h"
#include "ir/rewrite.h"

namespace gradloom::ir {
namespace {

bool is_math(const Expr& e) { return e.as<Math>() != nullptr; }

Expr built(KernelBuilder& b, const Math& n, Expr x) {
  switch (n.op) {
    case MathOp::exp:
      return exp(b, std::move(x));
    case MathOp::expm1:
      return expm1(b, std::move(x));
    case MathOp::log:
      return log(b, std::move(x));
    case MathOp::log1p:
      return log1p(b, std::move(x));
    case MathOp::tanh:
      return tanh(b, std::move(x));
    case MathOp::logistic:
      return logistic(b, std::move(x));
    case MathOp::softplus:
      return softplus(b, std::move(x));
    case MathOp::erf:
      return erf(b, std::move(x));
    case MathOp::sin:
      return sin(b, std::move(x));
    case MathOp::cos:
      return cos(b, std::move(x));
    case MathOp::pow:
      return pow(b, std::move(x), n.exponent);
  }
  throw Error(ErrorCode::internal, "an unknown elementary function");
}

class ExpandMath : public Rewriter {
 private:
  Expr rewrite(const Math& n, const Expr& self) override {
    const auto [slot, fresh] = expanded_.try_emplace(self.get());
    if (!fresh) return slot->second;
    const bool inside = std::exchange(inside_, true);
    const Expr a = (*this)(n.a);
    inside_ = inside;
    return expanded_[self.get()] = built(*lets_, n, a);
  }

  // A guarded load is lazy, its lets are not: a load that a function in its index takes keeps the guard.
  Expr rewrite(const Load& n, const Expr& self) override {
    if (n.guard && any_of_index(n)) {
      const Expr guard = (*this)(n.guard), otherwise = (*this)(n.otherwise);
      const Expr outer = std::exchange(guard_, both(guard_, guard));
      bool changed = false;
      std::vector<Expr> index = list(n.index, changed);
      guard_ = outer;
      return load(n.buffer, std::move(index), inside_ ? both(outer, guard) : guard, otherwise);
    }
    const Expr plain = Rewriter::rewrite(n, self);
    if (!inside_ || !guard_) return plain;
    const Load& l = *plain.as<Load>();
    return load(l.buffer, l.index, both(guard_, l.guard), l.guard ? l.otherwise : zero(self.type()));
  }
  static bool any_of_index(const Load& n) {
    for (const Expr& i : n.index)
      if (any_of(i, is_math)) return true;
    return false;
  }

  Stmt rewrite(const For& n, const Stmt& self) override { return with_lets(n, self); }
  Stmt rewrite(const Let& n, const Stmt& self) override { return with_lets(n, self); }
  Stmt rewrite(const Store& n, const Stmt& self) override { return with_lets(n, self); }
  Stmt rewrite(const Accumulate& n, const Stmt& self) override { return with_lets(n, self); }
  Stmt rewrite(const If& n, const Stmt& self) override { return with_lets(n, self); }
  // No let stands before each of its terms.
  Stmt rewrite(const Reduce&, const Stmt& self) override { return self; }
  Stmt rewrite(const Check& n, const Stmt& self) override { return with_lets(n, self); }
  Stmt rewrite(const Evaluate& n, const Stmt& self) override { return with_lets(n, self); }

  template <class Node>
  Stmt with_lets(const Node& n, const Stmt& self) {
    bool math = false;
    Children{[&](const auto& part) {
      if constexpr (std::is_same_v<std::decay_t<decltype(part)>, Expr>) math |= part && any_of(part, is_math);
    }}(n);
    if (!math) return Rewriter::rewrite(n, self);
    KernelBuilder lets("");
    KernelBuilder* const outer = std::exchange(lets_, &lets);
    auto expanded = std::exchange(expanded_, {});
    lets.append(Rewriter::rewrite(n, self));
    lets_ = outer;
    expanded_ = std::move(expanded);
    return lets.build().body;
  }

  KernelBuilder* lets_ = nullptr;  // of the statement being rewritten
  std::unordered_map<const ExprNode*, Expr> expanded_;
  Expr guard_;           // of the guarded loads whose index is being rewritten
  bool inside_ = false;  // a function's argument
};

}  // namespace

MathExpansion expand_math(const Math& n, const Expr& x) {
  KernelBuilder lets("");
  MathExpansion expansion{.lets = {}, .value = built(lets, n, x)};
  for (Stmt s = lets.build().body; s && s.as<Let>(); s = s.as<Let>()->body)
    expansion.lets.push_back({s.as<Let>()->var, s.as<Let>()->value});
  return expansion;
}

Kernel expand_math(const Kernel& kernel) { return any_of(kernel.body, is_math) ? ExpandMath()(kernel) : kernel; }

}  // namespace gradloom::ir
