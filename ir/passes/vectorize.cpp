// Widens vector loops to vector statements: the variable becomes a ramp and every expression that depends on it a
// vector; the rest stays scalar. Requires: constant extents of at most 64 and proved loops; scalar bodies. Gives: no
// loop of kind vector. Breaks: nothing.
//
// If-conversion: an If on a vector condition becomes guards. An inactive lane accesses no memory and fails no Check;
// its results are discarded, so divisors and shift counts are replaced by safe ones there, unless facts known outside
// the loop prove them.
#include <algorithm>

#include "gradloom/refusal.h"
#include "gradloom/target.h"
#include "ir/analysis/ranges.h"
#include "ir/index_math.h"
#include "ir/passes/passes.h"
#include "ir/rewrite.h"

namespace gradloom::ir {
namespace {

// Rewrites the body of one vector loop.
class Widen : public Rewriter {
 public:
  // `around`: what is known outside the loop.
  Widen(const For& loop, const Expr& begin, int lanes, const Ranges& around)
      : loop_(loop), lanes_(lanes), around_(around) {
    values_[loop.var.id] = ramp(begin, 1, lanes);
  }

  using Rewriter::operator();
  using Rewriter::rewrite;

  Expr rewrite(const Var& v, const Expr& self) override {
    auto found = values_.find(v.id);
    return found == values_.end() ? self : found->second;
  }

  Expr rewrite(const Load& n, const Expr& self) override {
    const Buffer b = buffer(n.buffer);
    bool changed = false;
    std::vector<Expr> index = index_of(n.buffer, n.index, changed);
    Expr own = (*this)(n.guard), otherwise = (*this)(n.otherwise);
    changed |= !own.same_as(n.guard) || !otherwise.same_as(n.otherwise);
    const Expr outer =
        guard_for(lanes_of(index) > 1 || (own && own.lanes() > 1) || (otherwise && otherwise.lanes() > 1));
    if (!changed && !outer) return self;
    return load(b, std::move(index), both(outer, own), otherwise);
  }

  Expr rewrite(const Binary& n, const Expr& self) override {
    Expr a = (*this)(n.a), b = (*this)(n.b);
    switch (n.op) {  // tested on the widened operand: a load in it gives 0 in inactive lanes
      case BinaryOp::floor_div:
      case BinaryOp::floor_mod:
        if (!around_.nonzero(b)) b = harmless(b, 1);
        break;
      case BinaryOp::shl:
      case BinaryOp::shr:
        if (!around_.shift_count(b)) b = in_range(harmless(b, 0), b);
        break;
      default:
        break;
    }
    if (a.same_as(n.a) && b.same_as(n.b)) return self;
    if (self.dtype() == DType::i64) {
      if (n.op == BinaryOp::add) return index_add(a, b);
      if (n.op == BinaryOp::sub) return index_sub(a, b);
      if (n.op == BinaryOp::mul) return index_mul(a, b);
    }
    return binary(n.op, a, b);
  }

  Expr rewrite(const Ramp&, const Expr&) override { refuse_vectors(); }
  Expr rewrite(const Broadcast&, const Expr&) override { refuse_vectors(); }
  Expr rewrite(const Shuffle&, const Expr&) override { refuse_vectors(); }

  Stmt rewrite(const For& n, const Stmt& self) override {
    if (n.kind == ForKind::vector) refuse("holds the vector loop " + n.var.name);
    Expr begin = (*this)(n.begin), extent = (*this)(n.extent);
    if (begin.lanes() > 1 || extent.lanes() > 1) refuse("the bounds of its inner loop " + n.var.name + " depend on it");
    Stmt body = (*this)(n.body);
    if (begin.same_as(n.begin) && extent.same_as(n.extent) && body.same_as(n.body)) return self;
    return for_loop(n.var, begin, extent, n.kind, body);
  }

  Stmt rewrite(const Let& n, const Stmt& self) override {
    Expr value = (*this)(n.value);
    Var v = n.var;
    if (value.lanes() > 1) {
      v = make_var(n.var.name, value.type());
      values_[n.var.id] = var(v);
    }
    Stmt body = (*this)(n.body);
    return value.same_as(n.value) && body.same_as(n.body) ? self : let(v, value, body);
  }

  // Uniform value and index: one store. Else lane after lane.
  Stmt rewrite(const Store& n, const Stmt& self) override {
    bool changed = false;
    std::vector<Expr> index = index_of(n.buffer, n.index, changed);
    Expr value = (*this)(n.value), own = (*this)(n.guard);
    changed |= !value.same_as(n.value) || !own.same_as(n.guard);
    const Expr outer = guard_for(lanes_of(index) > 1 || value.lanes() > 1 || (own && own.lanes() > 1));
    if (!changed && !outer) return self;
    return store(buffer(n.buffer), std::move(index), value, both(outer, own), n.streaming);
  }

  Stmt rewrite(const Accumulate& n, const Stmt&) override {
    bool changed = false;
    std::vector<Expr> index = index_of(n.buffer, n.index, changed);
    Expr value = broadcast((*this)(n.value), lanes_), factor = (*this)(n.factor), own = (*this)(n.guard);
    return accumulate(buffer(n.buffer), std::move(index), n.op, value, factor, both(guard_, own), n.atomic);
  }

  Stmt rewrite(const If& n, const Stmt& self) override {
    Expr condition = (*this)(n.condition);
    if (condition.lanes() == 1) {
      Stmt then_case = (*this)(n.then_case), else_case = (*this)(n.else_case);
      if (condition.same_as(n.condition) && then_case.same_as(n.then_case) && else_case.same_as(n.else_case))
        return self;
      return if_then(condition, then_case, else_case);
    }
    // Evaluate the mask once: the branches may change memory that the condition reads.
    const Var mask = make_var(loop_.var.name + "_m", condition.type());
    Stmt then_case = guarded(n.then_case, both(guard_, var(mask)));
    Stmt else_case = n.else_case ? guarded(n.else_case, both(guard_, unary(UnaryOp::bit_not, var(mask)))) : Stmt();
    return let(mask, condition, block({then_case, else_case}));
  }

  // Scalar expansion: a private buffer per lane, by one more dim, innermost.
  Stmt rewrite(const Alloc& n, const Stmt&) override {
    bool changed = false;
    BufferNode node = declaration(n.buffer, changed);
    node.id = 0;
    for (const Expr& dim : node.dims)
      if (dim.lanes() > 1) refuse("the dims of buffer " + node.name + " depend on it");
    node.dims.push_back(lanes_);
    node.facts.nondecreasing = node.facts.injective = false;
    for (Expr* bound : {&node.facts.min, &node.facts.max})
      if (*bound && bound->lanes() > 1) *bound = {};
    const Buffer wide = make_buffer(std::move(node));
    buffers_[n.buffer->id] = wide;
    return alloc(wide, (*this)(n.body));
  }

  Stmt rewrite(const Check& n, const Stmt& self) override {
    Expr condition = (*this)(n.condition), position = (*this)(n.position);
    const bool wide = condition.lanes() > 1 || position.lanes() > 1;
    if (const Expr on = guard_for(wide)) condition = unary(UnaryOp::bit_not, on) | condition;
    if (wide) condition = broadcast(condition, lanes_);
    Stmt body = (*this)(n.body);
    if (condition.same_as(n.condition) && position.same_as(n.position) && body.same_as(n.body)) return self;
    return check(condition, position, n.argument, body);
  }

  Expr rewrite(const Intrinsic& n, const Expr&) override {
    if (n.op != IntrinsicOp::prefetch) refuse_vectors();
    return prefetches(n)[0];
  }
  Stmt rewrite(const Evaluate& n, const Stmt&) override {
    const Intrinsic* hint = n.value.as<Intrinsic>();
    if (!hint || hint->op != IntrinsicOp::prefetch) return evaluate((*this)(n.value));
    std::vector<Stmt> all;
    for (const Expr& one : prefetches(*hint)) all.push_back(evaluate(one));
    return block(std::move(all));
  }

  Buffer buffer(const Buffer& b) override {
    auto found = buffers_.find(b->id);
    return found == buffers_.end() ? b : found->second;
  }

 private:
  [[noreturn]] void refuse(const std::string& why) const {
    throw LoweringRefusal(ErrorCode::invalid_argument, "vectorize: loop " + loop_.var.name + ": " + why);
  }
  [[noreturn]] void refuse_vectors() const { refuse("its body holds vectors already"); }

  static int lanes_of(const std::vector<Expr>& index) {
    for (const Expr& i : index)
      if (i.lanes() > 1) return i.lanes();
    return 1;
  }

  std::vector<Expr> index_of(const Buffer& b, const std::vector<Expr>& index, bool& changed) {
    std::vector<Expr> result = list(index, changed);
    if (buffers_.contains(b->id)) {
      result.push_back(ramp(0, 1, lanes_));
      changed = true;
    }
    return result;
  }

  // Of every line of neighbouring lanes; of other lanes the first one's, as a prefetch is a hint.
  std::vector<Expr> prefetches(const Intrinsic& n) {
    bool changed = false;
    std::vector<Expr> index = index_of(n.buffer, n.args, changed);
    const Buffer b = buffer(n.buffer);
    const Ramp* lanes = index.empty() ? nullptr : index.back().as<Ramp>();
    const bool dense = lanes && is_const(lanes->stride, 1) && (b->strides.empty() || is_const(b->strides.back(), 1)) &&
                       std::count_if(index.begin(), index.end(), [](const Expr& i) { return i.lanes() > 1; }) == 1;
    for (Expr& i : index) i = first_lane(i);
    std::vector<Expr> result;
    for (int64_t lane = 0; lane == 0 || (dense && lane < lanes_); lane += line_bytes / size_of(b->dtype)) {
      std::vector<Expr> at = index;
      if (lane > 0) at.back() = index_add(at.back(), lane);
      result.push_back(prefetch(b, std::move(at), n.level));
    }
    return result;
  }

  // The mask of a statement under the current guard: the active lanes, or for a scalar access whether any is active.
  Expr guard_for(bool wide) const {
    if (!guard_ || (!wide && some_lane_on_)) return {};
    return wide ? guard_ : any_lane(guard_);
  }

  Expr harmless(const Expr& operand, int64_t value) const {
    if (operand.as<Const>()) return operand;
    if (const Broadcast* b = operand.as<Broadcast>(); b && b->value.as<Const>()) return operand;
    const Expr on = guard_for(operand.lanes() > 1);
    return on ? select(on, operand, constant_int(operand.dtype(), value)) : operand;
  }

  // A count that only the mask shows to be in range, so that it is seen to be: of active lanes the same.
  static Expr in_range(const Expr& masked, const Expr& count) {
    if (masked.same_as(count)) return count;
    const int64_t most = 8 * size_of(count.dtype()) - 1;
    const auto all = [&](int64_t value) { return broadcast(constant_int(count.dtype(), value), count.lanes()); };
    return min(max(masked, all(0)), all(most));
  }

  // A loop is worth a branch around it for the case that no lane is active.
  Stmt guarded(const Stmt& s, const Expr& guard) {
    const Expr outer_guard = guard_;
    const bool outer_some = some_lane_on_, branch = holds_loop(s);
    const Var mask = make_var(loop_.var.name + "_m", guard.type());
    const bool named = guard.as<Var>() != nullptr;
    guard_ = named ? guard : var(mask);
    some_lane_on_ = branch;
    Stmt body = (*this)(s);
    if (branch) body = if_then(any_lane(guard_), body);
    guard_ = outer_guard;
    some_lane_on_ = outer_some;
    return named ? body : let(mask, guard, body);
  }

  const For& loop_;
  const int lanes_;
  const Ranges& around_;
  Substitution values_;
  std::unordered_map<int64_t, Buffer> buffers_;
  Expr guard_;                 // the active lanes; absent: all
  bool some_lane_on_ = false;  // under a branch that guarantees it
};

// Facts known outside a loop matter only where a divisor or a shift count is not constant.
class Vectorize : public Rewriter {
 public:
  explicit Vectorize(const Kernel& kernel) : scoped_(has_variable_divisor(kernel.body)) {
    if (scoped_) scope_ = Ranges(kernel);
  }
  using Rewriter::operator();

 private:
  using Rewriter::rewrite;
  template <class... Known>
  Stmt within(const Stmt& body, const Known&... known) {
    if (!scoped_ || !body) return (*this)(body);
    const Ranges::Scope inner(scope_, known...);
    return (*this)(body);
  }
  Stmt rewrite(const Store&, const Stmt& self) override { return self; }
  Stmt rewrite(const Accumulate&, const Stmt& self) override { return self; }
  Stmt rewrite(const Evaluate&, const Stmt& self) override { return self; }

  Stmt rewrite(const For& n, const Stmt& self) override {
    if (n.kind != ForKind::vector) {
      const Stmt body = within(n.body, n);
      return body.same_as(n.body) ? self : for_loop(n.var, n.begin, n.extent, n.kind, body);
    }
    const std::optional<int64_t> extent = as_int(n.extent);
    if (!extent || *extent > 64)
      throw LoweringRefusal(ErrorCode::invalid_argument,
                            "vectorize: loop " + n.var.name + " has no constant extent of at most 64");
    if (*extent <= 0) return block({});
    if (*extent == 1) return (*this)(let(n.var, n.begin, n.body));
    if (!has_load(n.begin)) return Widen(n, n.begin, static_cast<int>(*extent), scope_)(n.body);
    const Var first = make_var(n.var.name + "_b");
    return let(first, n.begin, Widen(n, var(first), static_cast<int>(*extent), scope_)(n.body));
  }
  Stmt rewrite(const Let& n, const Stmt& self) override {
    const Stmt body = within(n.body, n);
    return body.same_as(n.body) ? self : let(n.var, n.value, body);
  }
  Stmt rewrite(const If& n, const Stmt& self) override {
    const Stmt then_case = within(n.then_case, n.condition);
    const Stmt else_case = within(n.else_case, n.condition, false);
    return then_case.same_as(n.then_case) && else_case.same_as(n.else_case)
               ? self
               : if_then(n.condition, then_case, else_case);
  }
  Stmt rewrite(const Check& n, const Stmt& self) override {
    const Stmt body = within(n.body, n.condition);
    return body.same_as(n.body) ? self : check(n.condition, n.position, n.argument, body);
  }

  bool scoped_ = false;
  Ranges scope_;
};

}  // namespace

Kernel vectorize(const Kernel& kernel) { return Vectorize(kernel)(kernel); }

}  // namespace gradloom::ir
