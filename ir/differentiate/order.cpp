#include "ir/differentiate/order.h"

#include "ir/analysis/races.h"
#include "ir/index_math.h"
#include "ir/rewrite.h"

namespace gradloom::ir {
namespace {

size_t common_prefix(const Event& a, const Event& b) {
  size_t n = 0;
  while (n < a.path.size() && n < b.path.size() && a.path[n] == b.path[n]) ++n;
  return n;
}

// Whether the buffer is allocated by a statement of the path at or below this depth: each iteration of a loop above has
// one of its own.
bool allocated_below(const Event& e, size_t depth) {
  for (size_t i = depth; i < e.path.size(); ++i)
    if (const Alloc* n = e.path[i].stmt.as<Alloc>(); n && n->buffer.same_as(e.buffer)) return true;
  return false;
}

Expr negation(const Expr& condition) {
  const Binary* n = condition.as<Binary>();
  if (!n || !is_comparison(n->op) || is_float(n->a.dtype())) return unary(UnaryOp::bit_not, condition);
  constexpr std::pair<BinaryOp, BinaryOp> opposites[] = {
      {BinaryOp::eq, BinaryOp::ne}, {BinaryOp::lt, BinaryOp::ge}, {BinaryOp::le, BinaryOp::gt}};
  for (const auto& [a, b] : opposites)
    if (n->op == a || n->op == b) return binary(n->op == a ? b : a, n->a, n->b);
  return unary(UnaryOp::bit_not, condition);
}

// One execution of an access: enters what encloses it from `depth` on with variables of its own.
class Instance {
 public:
  Instance(Ranges& scope, const Event& e) : scope_(scope), e_(e) {}
  Substitution values;  // variables of the path that are others here

  void enter(size_t from, size_t to) {
    for (size_t i = from; i < to; ++i) enter(e_.path[i]);
  }
  void enter_guard() {
    if (e_.guard) scope_.assume(own(e_.guard));
  }
  std::vector<Expr> index() const {
    std::vector<Expr> result;
    for (const Expr& e : e_.index) result.push_back(own(e));
    return result;
  }
  Expr own(const Expr& e) const { return values.empty() ? e : substitute(e, values); }

 private:
  void enter(const Enclosing& around) {
    if (const For* n = around.stmt.as<For>()) {
      const Var v = values.empty() ? n->var : make_var(n->var.name, n->var.type);
      scope_.enter(*for_loop(v, own(n->begin), own(n->extent), n->kind, block({})).as<For>());
      if (!values.empty()) values[n->var.id] = var(v);
    } else if (const Let* n = around.stmt.as<Let>()) {
      const Var v = values.empty() ? n->var : make_var(n->var.name, n->var.type);
      scope_.enter(*let(v, own(n->value), block({})).as<Let>());
      if (!values.empty()) values[n->var.id] = var(v);
    } else if (const If* n = around.stmt.as<If>()) {
      const Expr condition = own(n->condition);
      scope_.assume(around.otherwise ? negation(condition) : condition);
    } else if (const Check* n = around.stmt.as<Check>()) {
      scope_.assume(own(n->condition));
    }
  }

  Ranges& scope_;
  const Event& e_;
};

bool differ(const Ranges& scope, const std::vector<Expr>& a, const std::vector<Expr>& b) {
  if (scope.never()) return true;
  for (size_t d = 0; d < a.size(); ++d) {
    if (a[d].type() != b[d].type()) continue;
    for (const Expr& apart : {a[d] != b[d], a[d]<b[d], a[d]> b[d]})
      if (scope.proves(apart).value_or(false)) return true;
  }
  return false;
}

// The statements of the path from `depth` on around a statement that accesses the same element, and no other.
Stmt alone(const Event& e, size_t depth) {
  Stmt s;
  if (e.kind == Event::read)
    s = let(make_var("read", {e.buffer->dtype, 1}), load(e.buffer, e.index), block({}));
  else
    s = store(e.buffer, e.index, zero({e.buffer->dtype, 1}));
  if (e.guard) s = if_then(e.guard, s);
  for (size_t i = e.path.size(); i-- > depth;) s = with_body(e.path[i], s);
  return s;
}

class Order {
 public:
  explicit Order(const Forward& forward) : forward_(forward) {}

  // Whether b, in a later iteration than a of the loop at this depth of both paths, may access the same element.
  bool may_follow_in_loop(const Event& a, const Event& b, size_t depth) const {
    const For& loop = *a.path[depth].stmt.as<For>();
    if (allocated_below(a, depth + 1)) return false;
    Ranges scope(forward_.kernel());
    Instance first(scope, a);
    first.enter(0, a.path.size());
    first.enter_guard();
    Instance second(scope, b);
    const Var gap = make_var("gap");
    const Expr begin = first.own(loop.begin), i = var(loop.var);
    scope.enter(*for_loop(gap, 0, index_sub(index_add(begin, loop.extent), index_add(i, 1)), ForKind::serial, block({}))
                     .as<For>());
    second.values[loop.var.id] = index_add(index_add(i, var(gap)), 1);
    second.enter(depth + 1, b.path.size());
    second.enter_guard();
    if (differ(scope, a.index, second.index())) return false;
    return !apart_in_all_iterations(a, b, depth);
  }

  // The same within one iteration of all loops around both.
  bool may_follow_here(const Event& a, const Event& b) const {
    const size_t common = common_prefix(a, b);
    if (common < a.path.size() && common < b.path.size() && a.path[common].stmt.same_as(b.path[common].stmt))
      return false;  // two sides of an If
    Ranges scope(forward_.kernel());
    Instance first(scope, a);
    first.enter(0, a.path.size());
    first.enter_guard();
    Instance second(scope, b);
    const Var same = make_var("same");  // any: that the others get names of their own
    second.values[same.id] = var(same);
    second.enter(common, b.path.size());
    second.enter_guard();
    return !differ(scope, a.index, second.index());
  }

  // Whether b may access an element after a has, a standing before b in the text or not.
  bool may_follow(const Event& a, const Event& b, bool before) const {
    if (before && may_follow_here(a, b)) return true;
    return carrying_loop(a, b) != nullptr;
  }

  const For* carrying_loop(const Event& a, const Event& b) const {
    const size_t common = common_prefix(a, b);
    for (size_t k = 0; k < common; ++k)
      if (const For* n = a.path[k].stmt.as<For>(); n && may_follow_in_loop(a, b, k)) return n;
    return nullptr;
  }

 private:
  bool apart_in_all_iterations(const Event& a, const Event& b, size_t depth) const {
    if (!a.writes() && !b.writes()) return true;
    const For& loop = *a.path[depth].stmt.as<For>();
    Ranges scope(forward_.kernel());
    Instance around(scope, a);
    around.enter(0, depth);
    const Stmt both = block({alone(a, depth + 1), alone(b, depth + 1)});
    return loop_carried_conflict(*for_loop(loop.var, loop.begin, loop.extent, ForKind::serial, both).as<For>(), scope)
        .empty();
  }

  const Forward& forward_;
};

bool same_kind(const Event& a, const Event& b) {
  const auto sort = [](const Event& e) {
    const AccumulateOp op = e.stmt.as<Accumulate>()->op;
    return op == AccumulateOp::fma ? AccumulateOp::add : op;
  };
  return sort(a) == sort(b);
}

// Those of the buffer; events stand in the order of the text.
template <class Visit>
void each_pair(const Forward& forward, const Buffer& buffer, Visit&& visit) {
  const std::vector<const Event*> own = forward.events_of(buffer);
  for (const Event* a : own)
    for (const Event* b : own) visit(*a, *b, a < b);
}

bool is_active_write(const Forward& forward, const Event& e) {
  return e.writes() && forward.is_active(written_value(e.stmt));
}

std::string in_loop(const For* loop) { return loop ? "in another iteration of loop " + loop->var.name : "again"; }
std::string advice(const Buffer& b, const For* loop) {
  return loop ? "give it a dim for " + loop->var.name + ", or allocate it in the loop"
              : "store to another buffer than " + b->name;
}

}  // namespace

void require_final(const Forward& forward, const Buffer& buffer) {
  const Order order(forward);
  each_pair(forward, buffer, [&](const Event& a, const Event& b, bool before) {
    if (a.kind != Event::read || !b.writes() || !order.may_follow(a, b, before)) return;
    const For* loop = order.carrying_loop(a, b);
    if (a.stmt.same_as(b.stmt) && !loop)
      forward.refuse("buffer " + buffer->name + " is read and stored to by one statement: " + advice(buffer, loop));
    forward.refuse("buffer " + buffer->name + " is written " + in_loop(loop) +
                   " after it was read, and the gradient needs what was read: " + advice(buffer, loop));
  });
}

void require_single_assignment(const Forward& forward) {
  const Order order(forward);
  std::unordered_set<int64_t> seen;
  for (const Event& written : forward.events()) {
    const Buffer& buffer = written.buffer;
    if (!written.writes() || !forward.is_active(buffer) || !seen.insert(buffer->id).second) continue;
    each_pair(forward, buffer, [&](const Event& a, const Event& b, bool before) {
      if (!a.writes() || !b.writes()) return;
      if (a.kind == Event::accumulate && b.kind == Event::accumulate) {
        if (!same_kind(a, b))
          forward.refuse("buffer " + buffer->name + " is accumulated into by more than one operation");
        return;
      }
      if (b.kind != Event::store || !is_active_write(forward, a) || !order.may_follow(a, b, before)) return;
      const For* loop = order.carrying_loop(a, b);
      const bool scatter = any_of(b.stmt, [&](const Expr& e) { return e.as<Load>() != nullptr; }) &&
                           std::any_of(b.index.begin(), b.index.end(), has_load);
      const auto through_let = [&](const Expr& i) {
        return any_of(i, [&](const Expr& e) {
          const Expr* value = e.as<Var>() ? forward.let_value(e.as<Var>()->id) : nullptr;
          return value && has_load(*value);
        });
      };
      if (loop && (scatter || std::any_of(b.index.begin(), b.index.end(), through_let)))
        forward.refuse("two iterations of loop " + loop->var.name + " may store to the same element of " +
                       buffer->name +
                       "; the gradient would depend on which was last: declare the index injective, or accumulate");
      forward.refuse("buffer " + buffer->name + " may be stored to " + in_loop(loop) +
                     ", over a value that has a gradient: " + advice(buffer, loop));
    });
    require_final(forward, buffer);
  }
}

std::unordered_set<int64_t> carried_loops(const Forward& forward) {
  const Order order(forward);
  std::unordered_set<int64_t> carried;
  for (const Event& a : forward.events()) {
    if (!a.writes() || !forward.is_active(a.buffer)) continue;
    for (const Event* read : forward.events_of(a.buffer)) {
      const Event& b = *read;
      if (b.kind != Event::read || !b.carries) continue;
      const size_t common = common_prefix(a, b);
      for (size_t k = 0; k < common; ++k)
        if (const For* n = a.path[k].stmt.as<For>(); n && order.may_follow_in_loop(a, b, k)) carried.insert(n->var.id);
    }
  }
  return carried;
}

}  // namespace gradloom::ir
