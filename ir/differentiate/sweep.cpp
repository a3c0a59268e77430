#include "ir/differentiate/sweep.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "ir/index_math.h"
#include "ir/rewrite.h"

namespace gradloom::ir {
namespace {

// Rewrites what is bound already to its let.
struct Bound : Rewriter {
  explicit Bound(const std::unordered_map<const ExprNode*, Expr>& values) : known(values) {}
  Expr of(const Expr& e) {
    if (const auto found = known.find(e.get()); found != known.end()) return found->second;
    return (*this)(e);
  }
  using Rewriter::rewrite;
  Expr rewrite(const Load&, const Expr& self) override { return self; }
  Expr rewrite(const Unary& n, const Expr& self) override {
    return rebuilt(self, {n.a}, [&](auto& p) { return unary(n.op, p[0]); });
  }
  Expr rewrite(const Binary& n, const Expr& self) override {
    return rebuilt(self, {n.a, n.b}, [&](auto& p) { return binary(n.op, p[0], p[1]); });
  }
  Expr rewrite(const Fma& n, const Expr& self) override {
    return rebuilt(self, {n.a, n.b, n.c}, [&](auto& p) { return fma(p[0], p[1], p[2]); });
  }
  Expr rewrite(const Select& n, const Expr& self) override {
    return rebuilt(self, {n.condition, n.a, n.b}, [&](auto& p) { return select(p[0], p[1], p[2]); });
  }
  Expr rewrite(const Cast& n, const Expr& self) override {
    return rebuilt(self, {n.value}, [&](auto& p) { return cast(self.dtype(), p[0]); });
  }
  Expr rewrite(const Math& n, const Expr& self) override {
    return rebuilt(self, {n.a}, [&](auto& p) { return with_argument(n, p[0]); });
  }
  template <class Make>
  Expr rebuilt(const Expr& self, std::vector<Expr> parts, Make&& make) {
    bool changed = false;
    for (Expr& part : parts) {
      const Expr now = of(part);
      changed |= !now.same_as(part);
      part = now;
    }
    return changed ? make(parts) : self;
  }
  const std::unordered_map<const ExprNode*, Expr>& known;
};

class Sweep {
 public:
  Sweep(const Forward& forward, KernelBuilder& b) : forward_(forward), b_(b) {}

  std::vector<Contribution> run(const Expr& value, const Expr& adjoint, const Expr& stored) {
    if (stored) primal_[value.get()] = stored;
    order(value);
    give(value, adjoint, {});
    for (size_t i = order_.size(); i-- > 0;) {
      const auto found = adjoints_.find(key(order_[i]));
      if (found != adjoints_.end()) propagate(order_[i], found->second);
    }
    std::reverse(result_.begin(), result_.end());
    return std::move(result_);
  }

 private:
  struct Adjoint {
    Expr value, mask;  // absent mask: everywhere
    bool bound = false;
  };
  // Uses of one let are one node, and so are loads of one element.
  const ExprNode* key(const Expr& e) {
    const Var* v = e.as<Var>();
    const Load* n = e.as<Load>();
    if (!v && !n) return e.get();
    std::vector<Expr>& alike = leaves_[v ? v->id : hash(*n)];
    for (const Expr& known : alike)
      if (equal(known, e)) return known.get();
    alike.push_back(e);
    return e.get();
  }
  // Equal for equal loads.
  static int64_t hash(const Load& n) {
    uint64_t h = static_cast<uint64_t>(n.buffer->id);
    for (const Expr& i : n.index) {
      const Var* v = i.as<Var>();
      h = h * 0x9e3779b97f4a7c15 + static_cast<uint64_t>(v ? v->id : as_int(i).value_or(0));
    }
    return static_cast<int64_t>(h);
  }

  // Operands before what uses them.
  void order(const Expr& e) {
    const ExprNode* const k = key(e);
    if (!seen_.insert(k).second) return;
    forward_.each_operand(e, [&](const Expr& x) {
      if (forward_.is_active(x)) order(x);
    });
    order_.push_back(e);
  }

  void give(const Expr& to, const Expr& value, const Expr& mask) {
    if (!forward_.is_active(to)) return;
    const Expr g = cast(accumulator_of(to.dtype()), value);
    const auto [slot, fresh] = adjoints_.try_emplace(key(to), Adjoint{g, mask});
    if (fresh) return;
    Adjoint& sum = slot->second;
    if (sum.mask && mask && equal(sum.mask, mask)) {
      sum.value = sum.value + g;
      return;
    }
    if (const auto sides = two_sides(sum.mask, mask)) {
      sum.value = select(sides->first, g, sum.value);
      sum.mask = sides->second;
      return;
    }
    // A masked part stays out of the sum, and where every part is masked out nothing is passed on.
    const auto part = [&](const Expr& v, const Expr& m) { return m ? select(m, v, zero(v.type())) : v; };
    sum.value = part(sum.value, sum.mask) + part(g, mask);
    sum.mask = sum.mask && mask ? sum.mask | mask : Expr();
  }

  static bool is_not(const Expr& e, const Expr& of) {
    const Unary* n = e.as<Unary>();
    return n && n->op == UnaryOp::bit_not && equal(n->a, of);
  }
  // Masks of both sides of one condition, and of nothing else: what holds for the second, and what they have in common.
  static std::optional<std::pair<Expr, Expr>> two_sides(const Expr& a, const Expr& b) {
    if (!a || !b) return std::nullopt;
    if (is_not(a, b) || is_not(b, a)) return std::pair{b, Expr()};
    const Binary *m = a.as<Binary>(), *n = b.as<Binary>();
    if (!m || !n || m->op != BinaryOp::bit_and || n->op != BinaryOp::bit_and || !equal(m->a, n->a)) return std::nullopt;
    if (!is_not(m->b, n->b) && !is_not(n->b, m->b)) return std::nullopt;
    return std::pair{n->b, m->a};
  }

  static bool is_simple(const Expr& e) {
    const Unary* n = e.as<Unary>();
    return e.as<Var>() || e.as<Const>() || e.as<Load>() || (n && n->op == UnaryOp::bit_not && n->a.as<Var>());
  }

  // The value of a node of the forward expression, bound once.
  Expr primal(const Expr& e) {
    if (const auto found = primal_.find(e.get()); found != primal_.end()) return found->second;
    if (is_simple(e)) return e;
    forward_.each_operand(e, [&](const Expr& x) {
      if (forward_.is_active(x) && !x.as<Var>()) primal(x);
    });
    const Expr value = Bound(primal_).of(e);
    return primal_[e.get()] = is_simple(value) ? value : b_.let("v", value);
  }
  Expr in_sum(const Expr& node, const Expr& like) { return cast(accumulator_of(like.dtype()), primal(node)); }

  void propagate(const Expr& e, Adjoint at) {
    if (const Load* n = e.as<Load>()) return at_load(*n, at);
    if (const Var* n = e.as<Var>()) {
      const Expr& value = *forward_.let_value(n->id);
      primal_.emplace(value.get(), e);
      give(value, at.value, at.mask);
      return;
    }
    if (const Cast* n = e.as<Cast>()) return give(n->value, at.value, at.mask);
    if (!is_simple(at.value)) at.value = b_.let("g", at.value);
    if (at.mask && !is_simple(at.mask)) at.mask = b_.let("on", at.mask);
    if (const Unary* n = e.as<Unary>()) return through(*n, e, at);
    if (const Binary* n = e.as<Binary>()) return through(*n, e, at);
    if (const Fma* n = e.as<Fma>()) {
      if (forward_.is_active(n->a)) give(n->a, at.value * primal(n->b), at.mask);
      if (forward_.is_active(n->b)) give(n->b, at.value * primal(n->a), at.mask);
      return give(n->c, at.value, at.mask);
    }
    if (const Select* n = e.as<Select>()) {
      const Expr on = n->condition.as<Var>() ? n->condition : b_.let("on", Bound(primal_).of(n->condition));
      give(n->a, at.value, both(at.mask, on));
      if (forward_.is_active(n->b)) give(n->b, at.value, both(at.mask, unary(UnaryOp::bit_not, on)));
      return;
    }
    if (const Math* n = e.as<Math>()) return through(*n, e, at);
    throw Error(ErrorCode::internal, "differentiate: an active value of a kind without a rule");
  }

  void at_load(const Load& n, const Adjoint& at) {
    const Expr mask = both(at.mask, n.guard);
    if (forward_.is_active(n.buffer)) result_.push_back({n, at.value, mask});
    if (n.guard && forward_.is_active(n.otherwise))
      give(n.otherwise, at.value, both(at.mask, unary(UnaryOp::bit_not, n.guard)));
  }

  void through(const Unary& n, const Expr& e, const Adjoint& at) {
    const Expr& g = at.value;
    const Expr zero_value = zero(g.type());
    switch (n.op) {
      case UnaryOp::neg:
        return give(n.a, -g, at.mask);
      case UnaryOp::sqrt:
        return give(n.a, g / (constant(g.dtype(), 2) * primal(e)), at.mask);
      case UnaryOp::abs: {
        const Expr x = primal(n.a);
        return give(n.a, select(x > zero_value, g, select(x < zero_value, -g, zero_value)), at.mask);
      }
      default:
        return;  // floor, ceil, trunc: each_operand has no operand of theirs
    }
  }

  void through(const Binary& n, const Expr& e, const Adjoint& at) {
    const Expr& g = at.value;
    const bool a = forward_.is_active(n.a), b = forward_.is_active(n.b);
    switch (n.op) {
      case BinaryOp::add:
        give(n.a, g, at.mask);
        return give(n.b, g, at.mask);
      case BinaryOp::sub:
        give(n.a, g, at.mask);
        if (b) give(n.b, -g, at.mask);
        return;
      case BinaryOp::mul: {
        const Expr right = a ? g * primal(n.b) : Expr(), left = b ? g * primal(n.a) : Expr();
        if (a) give(n.a, right, at.mask);
        if (b) give(n.b, left, at.mask);
        return;
      }
      case BinaryOp::div: {
        const Expr divisor = primal(n.b);
        if (a) give(n.a, g / divisor, at.mask);
        if (b) give(n.b, -(g * (primal(e) / divisor)), at.mask);
        return;
      }
      case BinaryOp::min:
      case BinaryOp::max:
        return through_extremum(n, at);
      default:
        throw Error(ErrorCode::internal, std::string("differentiate: an active value in ") + to_string(n.op));
    }
  }

  // With a NaN neither operand beats the other one: both get the gradient, and under `none` neither.
  void through_extremum(const Binary& n, const Adjoint& at) {
    const Expr a = primal(n.a), b = primal(n.b), &g = at.value;
    const Tie tie = forward_.how().tie;
    const auto beats = [&](bool is_second, bool or_equal) {
      const Expr &x = is_second ? b : a, &y = is_second ? a : b;
      const Expr &more = n.op == BinaryOp::max ? x : y, &less = n.op == BinaryOp::max ? y : x;
      return b_.let(is_second ? "second" : "first", or_equal ? more >= less : more > less);
    };
    const Expr part = tie == Tie::halves ? b_.let("part", select(a == b, g * constant(g.dtype(), 0.5), g)) : g;
    for (const bool to_second : {false, true}) {
      const Expr& to = to_second ? n.b : n.a;
      if (!forward_.is_active(to)) continue;
      const bool not_when_equal = tie == (to_second ? Tie::first : Tie::second);
      const Expr on =
          tie == Tie::none ? beats(to_second, false) : unary(UnaryOp::bit_not, beats(!to_second, not_when_equal));
      give(to, part, both(at.mask, on));
    }
  }

  void through(const Math& n, const Expr& e, const Adjoint& at) {
    const Expr& g = at.value;
    const auto number = [&](double v) { return constant(g.dtype(), v); };
    switch (n.op) {
      case MathOp::exp:
        return give(n.a, g * primal(e), at.mask);
      case MathOp::expm1:
        return give(n.a, g * (primal(e) + number(1)), at.mask);
      case MathOp::log:
        return give(n.a, g / primal(n.a), at.mask);
      case MathOp::log1p:
        return give(n.a, g / (primal(n.a) + number(1)), at.mask);
      case MathOp::tanh:
        return give(n.a, g * (number(1) - primal(e) * primal(e)), at.mask);
      case MathOp::logistic:
        return give(n.a, g * ((number(1) - primal(e)) * primal(e)), at.mask);
      case MathOp::softplus:
        return give(n.a, g * math(MathOp::logistic, primal(n.a)), at.mask);
      case MathOp::erf: {
        const Expr x = primal(n.a);
        return give(n.a, g * (number(2 * std::numbers::inv_sqrtpi) * math(MathOp::exp, -(x * x))), at.mask);
      }
      case MathOp::sin:
        return give(n.a, g * math(MathOp::cos, primal(n.a)), at.mask);
      case MathOp::cos:
        return give(n.a, -(g * math(MathOp::sin, primal(n.a))), at.mask);
      case MathOp::pow: {
        if (n.exponent == 0) return give(n.a, zero(g.type()), at.mask);  // a constant, of infinities and NaN, too
        if (n.exponent == 1) return give(n.a, g, at.mask);
        const Expr lower = n.exponent == 2 ? primal(n.a) : power(primal(n.a), n.exponent - 1);
        return give(n.a, g * (number(n.exponent) * lower), at.mask);
      }
    }
  }

  const Forward& forward_;
  KernelBuilder& b_;
  std::vector<Expr> order_;
  std::unordered_map<int64_t, std::vector<Expr>> leaves_;
  std::unordered_set<const ExprNode*> seen_;
  std::unordered_map<const ExprNode*, Adjoint> adjoints_;
  std::unordered_map<const ExprNode*, Expr> primal_;
  std::vector<Contribution> result_;
};

}  // namespace

std::vector<Contribution> contributions(const Forward& forward, KernelBuilder& b, const Expr& value,
                                        const Expr& adjoint, const Expr& stored) {
  return Sweep(forward, b).run(value, adjoint, stored);
}

}  // namespace gradloom::ir
