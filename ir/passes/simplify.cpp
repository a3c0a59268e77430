#include <algorithm>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "ir/analysis/races.h"
#include "ir/analysis/verify.h"
#include "ir/index_math.h"
#include "ir/passes/fold.h"
#include "ir/passes/passes.h"
#include "ir/rewrite.h"

namespace gradloom::ir {
namespace {

bool is_empty(const Stmt& s) {
  const Block* b = s.as<Block>();
  return !s || (b && b->stmts.empty());
}

// What a condition is made of by and, or and not.
void parts(const Expr& condition, std::vector<Expr>& to) {
  const Binary* b = condition.as<Binary>();
  const Unary* u = condition.as<Unary>();
  if (u && u->op == UnaryOp::bit_not && u->a.dtype() == DType::boolean) return parts(u->a, to);
  const bool both = b && (b->op == BinaryOp::bit_and || b->op == BinaryOp::bit_or);
  if (!both || b->a.dtype() != DType::boolean) return to.push_back(condition);
  parts(b->a, to), parts(b->b, to);
}
std::vector<Expr> parts(const Expr& condition) {
  std::vector<Expr> all;
  if (condition) parts(condition, all);
  return all;
}
// Use counts of variables; a use inside a loop within the variable's scope counts as many.
class Uses : Rewriter {
 public:
  explicit Uses(const Stmt& body) { (*this)(body); }
  int of(int64_t id) const {
    auto found = count_.find(id);
    return found == count_.end() ? 0 : found->second;
  }

 private:
  using Rewriter::rewrite;
  Expr rewrite(const Var& v, const Expr& self) override {
    auto defined = depth_of_.find(v.id);
    count_[v.id] += defined != depth_of_.end() && defined->second < depth_ ? 2 : 1;
    return self;
  }
  Stmt rewrite(const For& n, const Stmt& self) override {
    (*this)(n.begin), (*this)(n.extent);
    ++depth_;
    (*this)(n.body);
    --depth_;
    return self;
  }
  Stmt rewrite(const Reduce& n, const Stmt& self) override {
    ++depth_;  // its index, too: a use more than there is keeps a let
    Rewriter::rewrite(n, self);
    --depth_;
    return self;
  }
  Stmt rewrite(const Let& n, const Stmt& self) override {
    (*this)(n.value);
    depth_of_[n.var.id] = depth_;
    (*this)(n.body);
    return self;
  }
  Stmt rewrite(const Alloc& n, const Stmt& self) override {
    bool changed = false;
    declaration(n.buffer, changed);
    (*this)(n.body);
    return self;
  }
  std::unordered_map<int64_t, int> count_, depth_of_;
  int depth_ = 0;
};

// Folds conditions implied by their context. The dependence test may rely on a condition without being able to derive
// it from that context, so a loop whose iterations are no longer proved independent is simplified again with its
// conditions kept, and with the conditions folded around it restored around it.
class Simplifier : public Rewriter {
 public:
  explicit Simplifier(const Kernel& kernel) : kernel_(kernel), scope_(kernel), uses_(kernel.body) {}

 private:
  using Rewriter::rewrite;

  Expr rewrite(const Var& v, const Expr& self) override {
    auto found = values_.find(v.id);
    if (found != values_.end()) return found->second;
    if (v.type.dtype == DType::boolean && v.type.scalar())
      if (std::optional<bool> proved = scope_.proves(self)) return constant_bits(DType::boolean, *proved);
    return self;
  }
  // A guard implies nothing for the access's own index and value: they are evaluated for inactive lanes as well.
  Expr rewrite(const Load& n, const Expr& self) override {
    if (!n.guard) return Rewriter::rewrite(n, self);
    const Expr guard = (*this)(n.guard), otherwise = (*this)(n.otherwise);
    bool changed = !guard.same_as(n.guard) || !otherwise.same_as(n.otherwise);
    std::vector<Expr> index = list(n.index, changed);
    Buffer b = buffer(n.buffer);
    changed |= b.get() != n.buffer.get();
    if (keeps_) return load(b, std::move(index), original(n.guard), otherwise);
    Expr result = fold(changed ? load(b, std::move(index), guard, otherwise) : self, scope_);
    const Load* unguarded = result.as<Load>();
    folded_ += unguarded && !unguarded->guard;
    return result;
  }
  Expr rewrite(const Unary& n, const Expr& self) override { return fold(Rewriter::rewrite(n, self), scope_); }
  // What makes a division or a shift defined stays where the verifier could not do without it.
  Expr rewrite(const Binary& n, const Expr& self) override {
    const Expr folded = fold(Rewriter::rewrite(n, self), scope_);
    const Binary* b = folded.as<Binary>();
    if (!b || b->op != n.op || b->b.as<Const>() || b->b.same_as(n.b) || has_load(n.b) || is_defined(*b, scope_))
      return folded;
    const Expr kept = original(n.b);
    return b->a.same_as(n.a) && kept.same_as(n.b) ? self : binary(n.op, b->a, kept);
  }
  Expr rewrite(const Fma& n, const Expr& self) override { return fold(Rewriter::rewrite(n, self), scope_); }
  Expr rewrite(const Select& n, const Expr& self) override { return fold(Rewriter::rewrite(n, self), scope_); }
  Expr rewrite(const Cast& n, const Expr& self) override { return fold(Rewriter::rewrite(n, self), scope_); }
  Expr rewrite(const Bitcast& n, const Expr& self) override { return fold(Rewriter::rewrite(n, self), scope_); }
  Expr rewrite(const Ramp& n, const Expr& self) override { return fold(Rewriter::rewrite(n, self), scope_); }
  Expr rewrite(const Shuffle& n, const Expr& self) override { return fold(Rewriter::rewrite(n, self), scope_); }
  Expr rewrite(const Intrinsic& n, const Expr& self) override { return fold(Rewriter::rewrite(n, self), scope_); }

  Stmt rewrite(const For& n, const Stmt& self) override {
    const Expr begin = (*this)(n.begin), extent = (*this)(n.extent);
    const Range trips = scope_.of(extent);
    if (trips.max && *trips.max <= 0) return block({});
    // These loops stay even with one iteration: a warp loop defines which warp runs its lanes, a cooperative loop what
    // one launch is, and the grid loops in it what its phases are.
    const bool says =
        n.kind == ForKind::warp || n.kind == ForKind::cooperative || (n.kind == ForKind::grid && in_cooperative_);
    if (trips.single() && *trips.min == 1 && !says) return bind(n.var, begin, n.body, false);
    const auto with_body = [&](const Stmt& old) {
      const bool outside = std::exchange(in_cooperative_, in_cooperative_ || n.kind == ForKind::cooperative);
      const Stmt body = within(old, For{n.var, begin, extent, n.kind, n.body});
      in_cooperative_ = outside;
      if (is_empty(body)) return block({});
      if (begin.same_as(n.begin) && extent.same_as(n.extent) && body.same_as(n.body)) return self;
      return for_loop(n.var, begin, extent, n.kind, body);
    };
    const int before = folded_;
    const Stmt result = with_body(n.body);
    if (keeps_ || (folded_ == before && around_.empty()) || is_empty(result) || proved(*result.as<For>()))
      return result;
    keeps_ = true;
    Stmt kept = with_body(n.body);
    keeps_ = false;
    if (is_empty(kept)) return kept;
    if (!proved(*kept.as<For>()))
      for (size_t i = around_.size(); i-- > 0;) kept = if_then(around_[i], kept);
    return kept;
  }
  bool proved(const For& n) const {
    if (any_order(n.kind)) return loop_carried_conflict(n, scope_).empty();
    return !in_lanes(n.kind) || lane_order_conflict(n, scope_).empty();
  }
  // The condition before any known facts were folded into it.
  Expr original(const Expr& condition) const { return substitute(condition, values_); }
  // The simplified condition of a statement. A part of it that is folded counts as folded, and stays where conditions
  // are kept.
  Expr condition_of(const Expr& was) {
    const Expr now = (*this)(was);
    const std::vector<Expr> before = parts(was);
    if (before.size() < 2 || uniform(now) || parts(now).size() >= before.size()) return now;
    const auto folds = [&](const Expr& part) { return !uniform(part) && uniform((*this)(part)); };
    if (std::none_of(before.begin(), before.end(), folds)) return now;
    if (keeps_) return original(was);
    ++folded_;
    return now;
  }
  // The simplified branch of a condition that is known to be `truth`.
  Stmt decided(const Expr& condition, bool truth, const Stmt& guarded) {
    if (!guarded) return block({});
    if (condition.as<Const>()) return (*this)(guarded);
    Expr was = original(condition);
    if (!truth) was = unary(UnaryOp::bit_not, was);
    if (keeps_) {
      const Stmt inner = within(guarded, was);
      return is_empty(inner) ? inner : if_then(was, inner);
    }
    ++folded_;
    const bool stays = was.lanes() == 1 && !has_load(was);
    if (stays) around_.push_back(was);
    Stmt inner = (*this)(guarded);
    if (stays) around_.pop_back();
    return inner;
  }
  // The guard of a store that is known to be true: absent, unless conditions are kept.
  Expr on(const Expr& guard) {
    if (!guard || guard.as<Const>()) return {};
    if (keeps_) return original(guard);
    ++folded_;
    return {};
  }
  Stmt rewrite(const Let& n, const Stmt& self) override {
    Expr value = n.value.dtype() == DType::boolean ? condition_of(n.value) : (*this)(n.value);
    const bool guards = guards_a_divisor(n.value, value);
    if (const Binary* m = value.as<Binary>(); guards && !(m && m->op == BinaryOp::max))
      value = max((*this)(n.value.as<Binary>()->a), n.value.as<Binary>()->b);
    Stmt result = bind(n.var, value, n.body, !guards && uses_.of(n.var.id) == 1 && !has_load(value));
    const Let* kept = result.as<Let>();
    return kept && kept->var.id == n.var.id && kept->value.same_as(n.value) && kept->body.same_as(n.body) ? self
                                                                                                          : result;
  }
  // max(x, 1) makes x usable as a divisor. It stays where only the context proves that x is positive: that context may
  // have been dropped or moved by the time the divisor is checked.
  bool guards_a_divisor(const Expr& was, const Expr& value) const {
    const Binary* n = was.as<Binary>();
    if (!n || n->op != BinaryOp::max || was.type() != Type{DType::i64} || as_int(n->b).value_or(0) < 1) return false;
    return !value.as<Const>() && Ranges(kernel_).proves(value >= n->b) != true;
  }
  // The body with the variable substituted where that is free, else under a let.
  Stmt bind(const Var& v, const Expr& value, const Stmt& body, bool used_once) {
    constexpr int most_depth = 100;  // substituting a long chain of lets would build too deep an expression
    const Broadcast* b = value.as<Broadcast>();
    if ((used_once && value.node().tree.depth <= most_depth) || value.as<Const>() || value.as<Var>() ||
        (b && b->value.as<Const>())) {
      values_[v.id] = value;
      return (*this)(body);
    }
    const Stmt inner = within(body, Let{v, value, body});
    return is_empty(inner) ? inner : let(v, value, inner);
  }

  Stmt rewrite(const Store& n, const Stmt& self) override {
    const Expr guard = condition_of(n.guard);
    const std::optional<bool> active = guard ? scope_.proves(guard) : true;
    if (active == false) return block({});
    bool changed = !guard.same_as(n.guard) || (guard && active);
    std::vector<Expr> index = list(n.index, changed);
    const Expr value = (*this)(n.value);
    Buffer b = buffer(n.buffer);
    if (!changed && b.get() == n.buffer.get() && value.same_as(n.value)) return self;
    return store(b, std::move(index), value, active ? on(n.guard) : guard, n.streaming, n.ordered);
  }
  Stmt rewrite(const Accumulate& n, const Stmt& self) override {
    const Expr guard = condition_of(n.guard);
    const std::optional<bool> active = guard ? scope_.proves(guard) : true;
    if (active == false) return block({});
    bool changed = !guard.same_as(n.guard) || (guard && active);
    std::vector<Expr> index = list(n.index, changed);
    const Expr value = (*this)(n.value), factor = (*this)(n.factor);
    Buffer b = buffer(n.buffer);
    if (!changed && b.get() == n.buffer.get() && value.same_as(n.value) && factor.same_as(n.factor)) return self;
    return accumulate(b, std::move(index), n.op, value, factor, active ? on(n.guard) : guard, n.atomic, n.ordered);
  }
  Stmt rewrite(const If& n, const Stmt& self) override {
    const Expr condition = condition_of(n.condition);
    const std::optional<bool> known = scope_.proves(condition);
    if (known) return decided(n.condition, *known, *known ? n.then_case : n.else_case);
    const Stmt then_case = within(n.then_case, condition);
    Stmt else_case = n.else_case ? within(n.else_case, condition, false) : Stmt();
    if (is_empty(else_case)) else_case = {};
    if (is_empty(then_case) && !else_case) return block({});
    if (condition.same_as(n.condition) && then_case.same_as(n.then_case) && else_case.same_as(n.else_case)) return self;
    return if_then(condition, then_case, else_case);
  }
  Stmt rewrite(const Check& n, const Stmt& self) override {
    const Expr condition = condition_of(n.condition);
    if (scope_.proves(condition) == true)
      return n.condition.lanes() == 1 ? decided(n.condition, true, n.body) : (*this)(n.body);
    const Expr position = (*this)(n.position);
    const Stmt body = within(n.body, condition);
    if (condition.same_as(n.condition) && position.same_as(n.position) && body.same_as(n.body)) return self;
    return check(condition, position, n.argument, body);
  }
  Stmt rewrite(const Alloc& n, const Stmt& self) override {
    bool changed = false;
    BufferNode node = declaration(n.buffer, changed);
    const Buffer b = changed ? buffers_[n.buffer->id] = make_buffer(std::move(node)) : n.buffer;
    const Stmt body = (*this)(n.body);
    if (is_empty(body)) return body;
    return !changed && body.same_as(n.body) ? self : alloc(b, body);
  }
  Buffer buffer(const Buffer& b) override {
    auto found = buffers_.find(b->id);
    return found == buffers_.end() ? b : found->second;
  }

  // Simplifies the body under its facts; an empty block where they show that it is unreachable.
  template <class... Known>
  Stmt within(const Stmt& body, const Known&... known) {
    const Ranges::Scope inner(scope_, known...);
    return scope_.never() ? block({}) : (*this)(body);
  }

  bool in_cooperative_ = false;
  bool keeps_ = false;        // keep conditions that are known to hold
  int folded_ = 0;            // number of conditions folded so far
  std::vector<Expr> around_;  // the conditions folded around the current statement
  const Kernel& kernel_;
  Ranges scope_;
  Uses uses_;
  Substitution values_;
  std::unordered_map<int64_t, Buffer> buffers_;
};

// Removes lets and allocs that nothing in their body mentions. Bodies first, so that uses by a removed let do not
// count.
class DropUnused : public Rewriter {
  using Rewriter::rewrite;
  Expr rewrite(const Var& v, const Expr& self) override {
    vars_.insert(v.id);
    return self;
  }
  Stmt rewrite(const Let& n, const Stmt& self) override {
    const Stmt body = (*this)(n.body);
    if (!vars_.contains(n.var.id) || is_empty(body)) return body;
    (*this)(n.value);
    return body.same_as(n.body) ? self : let(n.var, n.value, body);
  }
  Stmt rewrite(const Alloc& n, const Stmt& self) override {
    const Stmt body = (*this)(n.body);
    if (!buffers_.contains(n.buffer->id)) return body;
    bool changed = false;
    declaration(n.buffer, changed);
    return body.same_as(n.body) ? self : alloc(n.buffer, body);
  }
  Buffer buffer(const Buffer& b) override {
    buffers_.insert(b->id);
    return b;
  }
  std::unordered_set<int64_t> vars_, buffers_;
};

}  // namespace

Kernel simplify(const Kernel& kernel) { return DropUnused()(Simplifier(kernel)(kernel)); }

}  // namespace gradloom::ir
