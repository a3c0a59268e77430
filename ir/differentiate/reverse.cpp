#include "ir/differentiate/reverse.h"

#include <algorithm>
#include <utility>

#include "ir/differentiate/gather.h"
#include "ir/differentiate/read_in_place.h"
#include "ir/differentiate/sweep.h"
#include "ir/differentiate/terms.h"
#include "ir/index_math.h"
#include "ir/redirect.h"
#include "ir/reduction.h"
#include "ir/rewrite.h"

namespace gradloom::ir {
namespace {

using Buffers = Reverse::Buffers;

Buffer like(const Buffer& b, const std::string& name, DType dtype) {
  return make_buffer({.name = name, .dtype = dtype, .dims = b->dims, .space = b->space});
}

Stmt where(const Expr& guard, const Stmt& s) { return guard && !is_empty(s) ? if_then(guard, s) : s; }

// NaN is NaN.
Expr is_same(const Expr& a, const Expr& b) { return (a == b) | ((a != a) & (b != b)); }

// Replaces accumulates into one buffer, and stores to it, by counting those that are equal to its value. What they
// start with counts, too, unless it is the operation's identity. `only_stores`: accumulates do not.
struct CountEqual : Rewriter {
  CountEqual(const Buffer& extremum, AccumulateOp op, const Buffer& to, bool without_accumulates)
      : of(extremum), none(identity(op, extremum->dtype)), count(to), only_stores(without_accumulates) {}
  using Rewriter::rewrite;
  Stmt rewrite(const Store& n, const Stmt& self) override {
    if (!n.buffer.same_as(of)) return self;
    return equal(n.value, none) ? block({}) : counted(n.index, n.value, n.guard);
  }
  Stmt rewrite(const Accumulate& n, const Stmt& self) override {
    if (!n.buffer.same_as(of)) return self;
    return only_stores ? block({}) : counted(n.index, n.value, n.guard);
  }
  Stmt rewrite(const Reduce& n, const Stmt& self) override {
    return n.buffer.same_as(of) ? (*this)(in_loops(n)) : self;
  }
  // What then does nothing goes.
  template <class Node>
  Stmt kept(const Node& n, const Stmt& self) {
    const Stmt now = Rewriter::rewrite(n, self);
    return is_idle(now) ? block({}) : now;
  }
  Stmt rewrite(const For& n, const Stmt& self) override { return kept(n, self); }
  Stmt rewrite(const Let& n, const Stmt& self) override { return kept(n, self); }
  Stmt rewrite(const If& n, const Stmt& self) override { return kept(n, self); }
  Stmt rewrite(const Check& n, const Stmt& self) override { return kept(n, self); }
  Stmt counted(const std::vector<Expr>& index, const Expr& value, const Expr& guard) const {
    return where(guard, accumulate(count, index, AccumulateOp::add, constant(count->dtype, 1), {},
                                   is_same(value, load(of, index))));
  }
  const Buffer of;
  const Expr none;
  const Buffer count;
  const bool only_stores;
};

}  // namespace

// A buffer of one element that the first statement stores, once, is a let.
Stmt Reverse::as_let_or_alloc(const Buffer& buffer, const Stmt& s) const {
  const Block* all = s.as<Block>();
  const Store* first = all && !all->stmts.empty() ? all->stmts[0].as<Store>() : nullptr;
  if (!first || first->guard || !first->buffer.same_as(buffer)) return alloc(buffer, s);
  const Stmt rest = block({all->stmts.begin() + 1, all->stmts.end()});
  if (accesses_.writes(rest, buffer) ||
      !std::all_of(first->index.begin(), first->index.end(), [](const Expr& i) { return is_const(i, 0); }) ||
      !std::all_of(buffer->dims.begin(), buffer->dims.end(), [](const Expr& dim) { return is_const(dim, 1); }))
    return alloc(buffer, s);
  struct AsVar : Rewriter {
    AsVar(const Buffer& b, const Expr& v, Accesses& known) : of(b), value(v), accesses(known) {}
    using Rewriter::rewrite;
    Stmt rewrite(const Block& n, const Stmt& self) override {
      return accesses.reads(self, of) ? Rewriter::rewrite(n, self) : self;
    }
    Expr rewrite(const Load& n, const Expr& self) override {
      return n.buffer.same_as(of) ? value : Rewriter::rewrite(n, self);
    }
    const Buffer of;
    const Expr value;
    Accesses& accesses;
  };
  const Var v = make_var(buffer->name, {buffer->dtype, 1});
  return let(v, first->value, AsVar(buffer, var(v), accesses_)(rest));
}

Stmt filled_with_zeros(const Buffer& buffer) {
  const Expr nothing = zero({buffer->dtype, 1});
  if (std::all_of(buffer->dims.begin(), buffer->dims.end(), [](const Expr& dim) { return is_const(dim, 1); }))
    return store(buffer, std::vector<Expr>(buffer->dims.size(), Expr(0)), nothing);
  KernelBuilder b("");
  b.loops("z", buffer->dims, [&](const std::vector<Expr>& i) { b.store(buffer, i, nothing); });
  return b.build().body;
}

Stmt Reverse::captured(const std::function<void()>& body) {
  KernelBuilder inner("");
  KernelBuilder* const outer = std::exchange(b_, &inner);
  body();
  b_ = outer;
  return inner.build().body;
}

Stmt Reverse::operator()(const Stmt& s) {
  Buffers outputs;
  for (const Buffer& b : forward_.kernel().buffers)
    if (b->role == Role::out) outputs.emplace(b->id, b);
  Stmt gradient = with_known(with_counts(s, outputs, [&] { reverse(s); }));
  Buffers again;
  for (const auto& [id, b] : loaded(gradient))
    if (outputs.contains(id) && !forward_.is_kept(b)) again.emplace(id, b);
  if (again.empty()) return gradient;
  Stmt values;
  for (size_t known = 0; known != again.size();) {
    known = again.size();
    values = recomputed(s, again);
    for (const auto& [id, b] : loaded(values))
      if (outputs.contains(id) && !forward_.is_kept(b)) again.emplace(id, b);
  }
  gradient = block({values, gradient});
  for (const auto& [id, b] : again) {
    const Buffer temporary = like(b, b->name, b->dtype);
    gradient = alloc(temporary, redirect(gradient, b, {.to = temporary}));
  }
  return gradient;
}

// The gradient of a scope. Where it needs them, how many values are equal to an extremum of the scope's own comes
// first.
Stmt Reverse::with_counts(const Stmt& scope, const Buffers& own, const std::function<void()>& body) {
  std::vector<Buffer> extrema;
  for (const auto& [id, b] : own)
    if (forward_.is_active(b) && is_extremum(b)) {
      extrema.push_back(b);
      counts_[id] = like(b, "equal_" + b->name, accumulator_of(b->dtype));
    }
  Stmt gradient = captured(body);
  for (const Buffer& b : extrema) {
    const Buffer count = counts_.at(b->id);
    if (!accesses_.reads(gradient, count)) continue;
    gradient = alloc(count, captured([&] {
                       b_->append(filled_with_zeros(count));
                       b_->append(counts(scope, b, count));
                       b_->append(gradient);
                     }));
  }
  return gradient;
}

void Reverse::reverse(const Stmt& s) {
  if (const Block* n = s.as<Block>()) {
    for (size_t i = n->stmts.size(); i-- > 0;) reverse(n->stmts[i]);
  } else if (const For* n = s.as<For>()) {
    reverse(*n);
  } else if (const Let* n = s.as<Let>()) {
    const Stmt body = within(n->body, *n);
    if (!is_empty(body)) b_->append(accesses_.mentions(body, n->var) ? let(n->var, n->value, body) : body);
  } else if (const Alloc* n = s.as<Alloc>()) {
    reverse(*n);
  } else if (const If* n = s.as<If>()) {
    const Stmt then_case = within(n->then_case, n->condition);
    const Stmt else_case = n->else_case ? within(n->else_case, n->condition, false) : Stmt();
    if (!is_empty(then_case) || !is_empty(else_case))
      b_->append(if_then(n->condition, then_case ? then_case : block({}), is_empty(else_case) ? Stmt() : else_case));
  } else if (const Check* n = s.as<Check>()) {
    const Stmt body = within(n->body, n->condition);
    if (!is_empty(body)) b_->append(check(n->condition, n->position, n->argument, body));
  } else if (const Store* n = s.as<Store>()) {
    reverse_write(s, n->buffer, n->index, n->guard);
  } else if (const Accumulate* n = s.as<Accumulate>()) {
    reverse_write(s, n->buffer, n->index, n->guard);
  }
}

void Reverse::reverse(const For& n) {
  const Stmt body = within(n.body, n);
  if (is_empty(body)) return;
  if (!carried_.contains(n.var.id)) return b_->append(for_loop(n.var, n.begin, n.extent, ForKind::serial, body));
  const Var back = make_var(n.var.name + "_r");
  const Expr last = index_add(n.begin, index_sub(n.extent, 1));
  b_->append(for_loop(back, 0, n.extent, ForKind::serial, let(n.var, index_sub(last, var(back)), body)));
}

void Reverse::reverse(const Alloc& n) {
  const Buffer& own = n.buffer;
  const bool active = forward_.is_active(own);
  Buffer adjoint;
  if (active) {
    adjoint = like(own, "d_" + own->name, accumulator_of(own->dtype));
    adjoints_[own->id] = {adjoint, adjoint};
  }
  const Stmt gradient = with_known(with_counts(n.body, {{own->id, own}}, [&] { reverse(n.body); }));
  adjoints_.erase(own->id);
  if (is_empty(gradient)) return;
  Stmt all = gradient;
  if (active) {
    const Stmt zeros = filled_with_zeros(adjoint);
    std::vector<Stmt> parts{zeros, gradient};
    gather(parts, {adjoint, zeros, adjoint, forward_.how().sums}, scope_, true, accesses_);
    all = block(std::move(parts));
  }
  if (active) all = read_in_place(all, adjoint, accesses_);
  if (accesses_.reads(gradient, own)) all = alloc(own, block({recomputed(n.body, {{own->id, own}}), all}));
  const bool stays = active && accesses_.uses(all, adjoint);
  b_->append(stays ? as_let_or_alloc(adjoint, all) : all);
}

Expr Reverse::adjoint_of(const Buffer& buffer, const std::vector<Expr>& index) const {
  return cast(accumulator_of(buffer->dtype), load(adjoints_.at(buffer->id).from, index));
}

void Reverse::reverse_write(const Stmt& s, const Buffer& buffer, const std::vector<Expr>& index, const Expr& guard) {
  if (!forward_.is_active(buffer)) return;
  if (is_extremum(buffer)) return reverse_extremum(s, buffer, index, guard);
  const Expr value = written_value(s);
  if (!forward_.is_active(value)) return;
  if (const Accumulate* n = s.as<Accumulate>(); n && n->op == AccumulateOp::mul)
    throw Error(ErrorCode::internal, "differentiate: a product that is no recurrence");
  const bool kept = s.as<Store>() && ((buffer->role == Role::out && forward_.is_kept(buffer)) || is_known(buffer)) &&
                    forward_.writes_of(buffer).count == 1;
  const bool fused = s.as<Accumulate>() && s.as<Accumulate>()->op == AccumulateOp::fma;
  // What a guard leaves out may have any index: nothing is read there.
  const Stmt added =
      captured([&] { add(value, adjoint_of(buffer, index), kept ? load(buffer, index) : Expr(), {}, fused); });
  b_->append(where(guard, added));
}

// What is equal to the minimum or maximum gets its part.
void Reverse::reverse_extremum(const Stmt& s, const Buffer& buffer, const std::vector<Expr>& index, const Expr& guard) {
  const Expr value = written_value(s);
  if (!forward_.is_active(value)) return;
  const Buffer count = counts_.at(buffer->id);
  const Stmt added = captured([&] {
    const Expr equal = is_same(value, load(buffer, index)), g = adjoint_of(buffer, index);
    const Expr one = constant(count->dtype, 1);
    switch (forward_.how().tie) {
      case Tie::halves:
        return add(value, g / load(count, index), {}, equal);
      case Tie::none:
        return add(value, g, {}, equal & (load(count, index) == one));
      case Tie::first: {
        require_forward_order(buffer);
        const Expr wins = b_->let("wins", equal & (load(count, index) != one));
        add(value, g, {}, wins);
        return b_->append(store(count, index, one, wins));
      }
      case Tie::second:
        forward_.refuse("the second of equal elements of " + buffer->name +
                        " is no rule for an accumulate: take halves, first or none");
    }
  });
  b_->append(where(guard, added));
}

// That the gradient visits the values of an extremum in the order of the forward nest.
void Reverse::require_forward_order(const Buffer& buffer) const {
  int accumulates = 0;
  for (const Event& e : forward_.events()) {
    if (!e.writes() || !e.buffer.same_as(buffer)) continue;
    if (e.kind == Event::store && !forward_.is_active(e.stmt.as<Store>()->value)) continue;
    bool backwards = e.kind == Event::store || ++accumulates > 1;
    for (const Place* p = e.place; p; p = p->up)
      if (const For* f = p->around.stmt.as<For>()) backwards |= carried_.contains(f->var.id);
    if (backwards)
      forward_.refuse("the first of equal elements of " + buffer->name +
                      " is known to the gradient of one statement in loops that run forwards: take halves or none");
  }
}

void Reverse::add(const Expr& value, const Expr& adjoint, const Expr& stored, const Expr& guard, bool fused) {
  for (const Contribution& c : contributions(forward_, *b_, value, adjoint, stored)) {
    const auto to = adjoints_.find(c.load.buffer->id);
    if (to == adjoints_.end()) throw Error(ErrorCode::internal, "no adjoint of " + c.load.buffer->name);
    const Binary* product = fused ? c.value.as<Binary>() : nullptr;
    const Expr on = both(guard, c.mask);
    if (product && product->op == BinaryOp::mul)
      b_->append(accumulate(to->second.to, c.load.index, AccumulateOp::fma, product->a, product->b, on));
    else
      b_->append(accumulate(to->second.to, c.load.index, AccumulateOp::add, c.value, {}, on));
  }
}

Buffers loaded(const Stmt& s) {
  Buffers result;
  walk(s, {}, [&](const Expr& e) {
    if (const Load* n = e.as<Load>()) result.emplace(n->buffer->id, n->buffer);
  });
  return result;
}

Stmt Reverse::slice(const Stmt& s, const Buffers& wanted) const {
  if (std::none_of(wanted.begin(), wanted.end(), [&](const auto& b) { return accesses_.writes(s, b.second); }))
    return {};
  const auto rebuilt = [&](const Stmt& body, auto&& make) {
    const Stmt part = slice(body, wanted);
    return is_empty(part) ? Stmt() : make(part);
  };
  // In its declared order, as the forward nest has it.
  if (const Stmt* reduction = forward_.reduction(s))
    return *reduction && wanted.contains(reduction->as<Reduce>()->buffer->id) ? *reduction : Stmt();
  if (const Block* n = s.as<Block>()) {
    std::vector<Stmt> parts;
    for (const Stmt& part : n->stmts) parts.push_back(slice(part, wanted));
    return block(std::move(parts));
  }
  if (const For* n = s.as<For>())
    return rebuilt(n->body, [&](const Stmt& b) { return for_loop(n->var, n->begin, n->extent, n->kind, b); });
  if (const Let* n = s.as<Let>())
    return rebuilt(n->body,
                   [&](const Stmt& b) { return accesses_.mentions(b, n->var) ? let(n->var, n->value, b) : b; });
  if (const Alloc* n = s.as<Alloc>())
    return rebuilt(n->body, [&](const Stmt& b) { return wanted.contains(n->buffer->id) ? alloc(n->buffer, b) : b; });
  if (const Check* n = s.as<Check>())
    return rebuilt(n->body, [&](const Stmt& b) { return check(n->condition, n->position, n->argument, b); });
  if (const If* n = s.as<If>()) {
    const Stmt a = slice(n->then_case, wanted), b = n->else_case ? slice(n->else_case, wanted) : Stmt();
    if (is_empty(a) && is_empty(b)) return {};
    return if_then(n->condition, is_empty(a) ? block({}) : a, is_empty(b) ? Stmt() : b);
  }
  if (const Store* n = s.as<Store>()) return wanted.contains(n->buffer->id) ? s : Stmt();
  if (const Accumulate* n = s.as<Accumulate>()) return wanted.contains(n->buffer->id) ? s : Stmt();
  return {};
}

// What s allocates itself is computed along; all else is there when s begins.
Stmt Reverse::recomputed(const Stmt& s, Buffers wanted) const {
  for (;;) {
    const Stmt part = with_known(slice(s, wanted));
    const size_t before = wanted.size();
    for (const auto& [id, buffer] : loaded(part))  // what s uses and does not allocate is from outside
      if (buffer->role == Role::temp && !accesses_.uses(s, buffer)) wanted.emplace(id, buffer);
    if (wanted.size() == before) return refresh(part);
  }
}

bool Reverse::is_known(const Buffer& buffer) const {
  const std::vector<Known>& all = forward_.how().known;
  return std::any_of(all.begin(), all.end(), [&](const Known& k) { return k.buffer.same_as(buffer); });
}

Stmt Reverse::with_known(const Stmt& s) const {
  struct Guarded : Rewriter {  // where the guard does not hold, nothing is read
    explicit Guarded(const Expr& condition) : guard(condition) {}
    using Rewriter::rewrite;
    Expr rewrite(const Load& n, const Expr& self) override {
      return load(n.buffer, n.index, both(guard, n.guard), n.guard ? n.otherwise : zero(self.type()));
    }
    const Expr guard;
  };
  struct Replace : Rewriter {
    explicit Replace(const std::vector<Known>& all) : known(all) {}
    using Rewriter::rewrite;
    Expr rewrite(const Load& n, const Expr& self) override {
      const auto found =
          std::find_if(known.begin(), known.end(), [&](const Known& k) { return k.buffer.same_as(n.buffer); });
      if (found == known.end()) return Rewriter::rewrite(n, self);
      Substitution at;
      for (size_t d = 0; d < n.index.size(); ++d) at[found->index.at(d).id] = (*this)(n.index[d]);
      const Expr value = substitute(found->value, at), guard = (*this)(n.guard);
      return guard ? select(guard, Guarded(guard)(value), (*this)(n.otherwise)) : value;
    }
    const std::vector<Known>& known;
  };
  return s && !forward_.how().known.empty() ? Replace(forward_.how().known)(s) : s;
}

bool Reverse::is_extremum(const Buffer& buffer) const {
  const Accumulate* n = forward_.writes_of(buffer).accumulate;
  return n && (n->op == AccumulateOp::min || n->op == AccumulateOp::max);
}

Stmt Reverse::counts(const Stmt& scope, const Buffer& buffer, const Buffer& count) const {
  return CountEqual(buffer, forward_.writes_of(buffer).accumulate->op, count,
                    forward_.how().tie == Tie::first)(recomputed(scope, {{buffer->id, buffer}}));
}

}  // namespace gradloom::ir
