#include "ir/rewrite.h"

#include "ir/children.h"

namespace gradloom::ir {

Expr Rewriter::operator()(const Expr& e) {
  if (!e) return e;
  return std::visit([&](const auto& n) { return rewrite(n, e); }, e.node().value);
}

Stmt Rewriter::operator()(const Stmt& s) {
  if (!s) return s;
  return std::visit([&](const auto& n) { return rewrite(n, s); }, s.node().value);
}

Kernel Rewriter::operator()(const Kernel& kernel) {
  Kernel result = kernel;
  result.body = (*this)(kernel.body);
  return result;
}

std::vector<Expr> Rewriter::list(const std::vector<Expr>& exprs, bool& changed) {
  std::vector<Expr> result;
  result.reserve(exprs.size());
  for (const Expr& e : exprs) {
    result.push_back((*this)(e));
    changed |= !result.back().same_as(e);
  }
  return result;
}

BufferNode Rewriter::declaration(const Buffer& b, bool& changed) {
  BufferNode node = *b;
  node.dims = list(b->dims, changed);
  node.strides = list(b->strides, changed);
  for (Expr* fact : {&node.facts.min, &node.facts.max}) {
    const Expr now = (*this)(*fact);
    changed |= !now.same_as(*fact);
    *fact = now;
  }
  return node;
}

Expr Rewriter::rewrite(const Load& n, const Expr& self) {
  Buffer b = buffer(n.buffer);
  bool changed = b.get() != n.buffer.get();
  std::vector<Expr> index = list(n.index, changed);
  Expr guard = (*this)(n.guard), otherwise = (*this)(n.otherwise);
  if (!changed && guard.same_as(n.guard) && otherwise.same_as(n.otherwise)) return self;
  return load(b, std::move(index), guard, otherwise);
}

Expr Rewriter::rewrite(const Unary& n, const Expr& self) {
  Expr a = (*this)(n.a);
  return a.same_as(n.a) ? self : unary(n.op, a);
}

Expr Rewriter::rewrite(const Binary& n, const Expr& self) {
  Expr a = (*this)(n.a), b = (*this)(n.b);
  return a.same_as(n.a) && b.same_as(n.b) ? self : binary(n.op, a, b);
}

Expr Rewriter::rewrite(const Fma& n, const Expr& self) {
  Expr a = (*this)(n.a), b = (*this)(n.b), c = (*this)(n.c);
  return a.same_as(n.a) && b.same_as(n.b) && c.same_as(n.c) ? self : fma(a, b, c);
}

Expr Rewriter::rewrite(const Select& n, const Expr& self) {
  Expr condition = (*this)(n.condition), a = (*this)(n.a), b = (*this)(n.b);
  return condition.same_as(n.condition) && a.same_as(n.a) && b.same_as(n.b) ? self : select(condition, a, b);
}

Expr Rewriter::rewrite(const Cast& n, const Expr& self) {
  Expr value = (*this)(n.value);
  return value.same_as(n.value) ? self : cast(self.dtype(), value);
}

Expr Rewriter::rewrite(const Bitcast& n, const Expr& self) {
  Expr value = (*this)(n.value);
  return value.same_as(n.value) ? self : bitcast(self.dtype(), value);
}

Expr Rewriter::rewrite(const Ramp& n, const Expr& self) {
  Expr base = (*this)(n.base), stride = (*this)(n.stride);
  return base.same_as(n.base) && stride.same_as(n.stride) ? self : ramp(base, stride, n.lanes);
}

Expr Rewriter::rewrite(const Broadcast& n, const Expr& self) {
  Expr value = (*this)(n.value);
  return value.same_as(n.value) ? self : broadcast(value, n.lanes);
}

Expr Rewriter::rewrite(const Shuffle& n, const Expr& self) {
  Expr a = (*this)(n.a), b = (*this)(n.b);
  return a.same_as(n.a) && b.same_as(n.b) ? self : shuffle(a, b, n.lanes);
}

Expr Rewriter::rewrite(const Intrinsic& n, const Expr& self) {
  switch (n.op) {
    case IntrinsicOp::prefetch: {
      Buffer b = buffer(n.buffer);
      bool changed = b.get() != n.buffer.get();
      std::vector<Expr> index = list(n.args, changed);
      return changed ? prefetch(b, std::move(index), n.level) : self;
    }
    case IntrinsicOp::all:
    case IntrinsicOp::any: {
      Expr condition = (*this)(n.args[0]);
      if (condition.same_as(n.args[0])) return self;
      return n.op == IntrinsicOp::all ? all_lanes(condition) : any_lane(condition);
    }
  }
  return self;
}

Expr Rewriter::rewrite(const Math& n, const Expr& self) {
  Expr a = (*this)(n.a);
  return a.same_as(n.a) ? self : with_argument(n, a);
}

Stmt Rewriter::rewrite(const For& n, const Stmt& self) {
  Expr begin = (*this)(n.begin), extent = (*this)(n.extent);
  Stmt body = (*this)(n.body);
  if (begin.same_as(n.begin) && extent.same_as(n.extent) && body.same_as(n.body)) return self;
  return for_loop(n.var, begin, extent, n.kind, body ? body : block({}));
}

Stmt Rewriter::rewrite(const Block& n, const Stmt& self) {
  std::vector<Stmt> stmts;
  bool changed = false;
  for (const Stmt& s : n.stmts) {
    stmts.push_back((*this)(s));
    changed |= !stmts.back().same_as(s);
  }
  return changed ? block(std::move(stmts)) : self;
}

Stmt Rewriter::rewrite(const Let& n, const Stmt& self) {
  Expr value = (*this)(n.value);
  Stmt body = (*this)(n.body);
  return value.same_as(n.value) && body.same_as(n.body) ? self : let(n.var, value, body ? body : block({}));
}

Stmt Rewriter::rewrite(const Store& n, const Stmt& self) {
  Buffer b = buffer(n.buffer);
  bool changed = b.get() != n.buffer.get();
  std::vector<Expr> index = list(n.index, changed);
  Expr value = (*this)(n.value), guard = (*this)(n.guard);
  if (!changed && value.same_as(n.value) && guard.same_as(n.guard)) return self;
  return store(b, std::move(index), value, guard, n.streaming, n.ordered);
}

Stmt Rewriter::rewrite(const Accumulate& n, const Stmt& self) {
  Buffer b = buffer(n.buffer);
  bool changed = b.get() != n.buffer.get();
  std::vector<Expr> index = list(n.index, changed);
  Expr value = (*this)(n.value), factor = (*this)(n.factor), guard = (*this)(n.guard);
  if (!changed && value.same_as(n.value) && factor.same_as(n.factor) && guard.same_as(n.guard)) return self;
  return accumulate(b, std::move(index), n.op, value, factor, guard, n.atomic, n.ordered);
}

Stmt Rewriter::rewrite(const Reduce& n, const Stmt& self) {
  Reduce now = n;
  now.buffer = buffer(n.buffer);
  bool changed = now.buffer.get() != n.buffer.get();
  const auto again = [&](Expr& e) {
    Expr fresh = (*this)(e);
    changed |= !fresh.same_as(e);
    e = std::move(fresh);
  };
  for (Reduce::Range& r : now.ranges) again(r.begin), again(r.extent);
  for (Expr& i : now.index) again(i);
  again(now.guard);
  for (Reduce::Definition& d : now.lets) again(d.value);
  again(now.value), again(now.factor);
  return changed ? reduce(std::move(now)) : self;
}

Stmt Rewriter::rewrite(const If& n, const Stmt& self) {
  Expr condition = (*this)(n.condition);
  Stmt then_case = (*this)(n.then_case), else_case = (*this)(n.else_case);
  if (condition.same_as(n.condition) && then_case.same_as(n.then_case) && else_case.same_as(n.else_case)) return self;
  return if_then(condition, then_case, else_case);
}

Stmt Rewriter::rewrite(const Alloc& n, const Stmt& self) {
  Buffer b = buffer(n.buffer);
  Stmt body = (*this)(n.body);
  return b.get() == n.buffer.get() && body.same_as(n.body) ? self : alloc(b, body ? body : block({}));
}

Stmt Rewriter::rewrite(const Check& n, const Stmt& self) {
  Expr condition = (*this)(n.condition), position = (*this)(n.position);
  Stmt body = (*this)(n.body);
  if (condition.same_as(n.condition) && position.same_as(n.position) && body.same_as(n.body)) return self;
  return check(condition, position, n.argument, body);
}

Stmt Rewriter::rewrite(const Evaluate& n, const Stmt& self) {
  Expr value = (*this)(n.value);
  if (!value.as<Intrinsic>()) return block({});  // folded: it has no side effect
  return value.same_as(n.value) ? self : evaluate(value);
}

namespace {

struct Walker {
  const std::function<void(const Stmt&)>* stmt = nullptr;
  const std::function<void(const Expr&)>* expr;

  void visit(const Expr& e) {
    if (!e || !*expr) return;
    (*expr)(e);
    std::visit(children, e.node().value);
  }
  void visit(const Stmt& s) {
    if (!s) return;
    if (*stmt) (*stmt)(s);
    std::visit(children, s.node().value);
  }

 private:
  struct Down {
    Walker& walker;
    void operator()(const auto& part) const { walker.visit(part); }
  };
  const Children<Down> children{Down{*this}};
};

// Sort: Expr or Stmt, the type that the predicate takes.
template <class Sort>
class Search {
 public:
  explicit Search(const std::function<bool(const Sort&)>& predicate) : predicate_(predicate) {}
  template <class Root>
  bool of(const Root& root) {
    visit(root);
    return found_;
  }

 private:
  template <class Part>
  void visit(const Part& part) {
    if (found_ || !part) return;
    if constexpr (std::is_same_v<Part, Sort>) found_ = predicate_(part);
    if constexpr (std::is_same_v<Part, Stmt> || std::is_same_v<Sort, Expr>)  // no expression holds a statement
      if (!found_) std::visit(Children{[this](const auto& child) { visit(child); }}, part.node().value);
  }
  const std::function<bool(const Sort&)>& predicate_;
  bool found_ = false;
};

}  // namespace

void walk(const Stmt& root, const std::function<void(const Stmt&)>& stmt,
          const std::function<void(const Expr&)>& expr) {
  Walker walker;
  walker.stmt = &stmt;
  walker.expr = &expr;
  walker.visit(root);
}

void walk(const Expr& root, const std::function<void(const Expr&)>& expr) {
  Walker walker;
  walker.expr = &expr;
  walker.visit(root);
}

bool any_of(const Expr& root, const std::function<bool(const Expr&)>& predicate) {
  return Search<Expr>(predicate).of(root);
}
bool any_of(const Stmt& root, const std::function<bool(const Expr&)>& predicate) {
  return Search<Expr>(predicate).of(root);
}
bool any_of(const Stmt& root, const std::function<bool(const Stmt&)>& predicate) {
  return Search<Stmt>(predicate).of(root);
}

namespace {
bool divides_by_variable(const Expr& e) {
  const Binary* b = e.as<Binary>();
  return b &&
         (b->op == BinaryOp::floor_div || b->op == BinaryOp::floor_mod || b->op == BinaryOp::shl ||
          b->op == BinaryOp::shr) &&
         !b->b.as<Const>();
}
auto is_variable(int64_t id) {
  return [id](const Expr& e) { return e.as<Var>() && e.as<Var>()->id == id; };
}
}  // namespace

bool has_variable_divisor(const Expr& e) { return any_of(e, divides_by_variable); }
bool has_variable_divisor(const Stmt& s) { return any_of(s, divides_by_variable); }

bool mentions(const Expr& e, int64_t var_id) { return any_of(e, is_variable(var_id)); }
bool mentions(const Stmt& s, int64_t var_id) { return any_of(s, is_variable(var_id)); }

bool reads(const Expr& e, const Buffer& buffer) {
  return any_of(e, [&](const Expr& x) { return x.as<Load>() && x.as<Load>()->buffer.same_as(buffer); });
}

bool writes(const Stmt& s, const Buffer& buffer) {
  return any_of(s, [&](const Stmt& x) {
    const Store* st = x.as<Store>();
    const Accumulate* ac = x.as<Accumulate>();
    const Reduce* re = x.as<Reduce>();
    return (st && st->buffer.same_as(buffer)) || (ac && ac->buffer.same_as(buffer)) ||
           (re && re->buffer.same_as(buffer));
  });
}

bool holds_loop(const Stmt& s) {
  return any_of(s, [](const Stmt& part) { return part.as<For>() != nullptr; });
}

bool holds_reduction(const Stmt& s) {
  return any_of(s, [](const Stmt& part) { return part.as<Reduce>() != nullptr; });
}

std::vector<const For*> loops_below(const Stmt& root) {
  std::vector<const For*> result;
  walk(root, [&](const Stmt& s) {
    if (const For* n = s.as<For>()) result.push_back(n);
  });
  return result;
}

bool uses_only(const Expr& e, const std::vector<Var>& vars) {
  return !any_of(e, [&](const Expr& x) {
    const Var* v = x.as<Var>();
    return v && std::none_of(vars.begin(), vars.end(), [&](const Var& w) { return w.id == v->id; });
  });
}

}  // namespace gradloom::ir
