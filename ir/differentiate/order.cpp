#include "ir/differentiate/order.h"

#include <algorithm>
#include <map>

#include "ir/analysis/races.h"
#include "ir/index_math.h"
#include "ir/rewrite.h"

namespace gradloom::ir {
namespace {

Expr negation(const Expr& condition) {
  const Binary* n = condition.as<Binary>();
  if (!n || !is_comparison(n->op) || is_float(n->a.dtype())) return unary(UnaryOp::bit_not, condition);
  constexpr std::pair<BinaryOp, BinaryOp> opposites[] = {
      {BinaryOp::eq, BinaryOp::ne}, {BinaryOp::lt, BinaryOp::ge}, {BinaryOp::le, BinaryOp::gt}};
  for (const auto& [a, b] : opposites)
    if (n->op == a || n->op == b) return binary(n->op == a ? b : a, n->a, n->b);
  return unary(UnaryOp::bit_not, condition);
}

bool differ(const Ranges& scope, const std::vector<Expr>& a, const std::vector<Expr>& b) {
  if (scope.never()) return true;
  for (size_t d = 0; d < a.size(); ++d) {
    if (a[d].type() != b[d].type()) continue;
    for (const Expr& apart : {a[d] != b[d], a[d]<b[d], a[d]> b[d]})
      if (scope.proves(apart).value_or(false)) return true;
  }
  return false;
}

bool same_operation(const Accumulate& a, const Accumulate& b) {
  const auto sort = [](AccumulateOp op) { return op == AccumulateOp::fma ? AccumulateOp::add : op; };
  return sort(a.op) == sort(b.op);
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

bool Order::Around::has(const Forward::Definition* let) const {
  return std::find(lets.begin(), lets.end(), let) != lets.end();
}

const Order::Around& Order::around(const Event& e) {
  const auto [slot, fresh] = around_.try_emplace(&e);
  Around& result = slot->second;
  if (!fresh) return result;
  result.places = path(e.place);
  const std::function<void(const Expr&)> depend = [&](const Expr& x) {
    if (!x) return;
    walk(x, [&](const Expr& part) {
      const Var* v = part.as<Var>();
      const Forward::Definition* let = v ? forward_.definition(v->id) : nullptr;
      if (!let || result.has(let)) return;
      result.lets.push_back(let);
      depend(let->let.as<Let>()->value);
    });
  };
  for (const Expr& i : e.index) depend(i);
  depend(e.guard);
  for (const Place* p : result.places) {
    if (const For* n = p->around.stmt.as<For>()) depend(n->begin), depend(n->extent);
    if (const If* n = p->around.stmt.as<If>()) depend(n->condition);
    if (const Check* n = p->around.stmt.as<Check>()) depend(n->condition);
  }
  std::sort(result.lets.begin(), result.lets.end(), [](auto* a, auto* b) { return a->order < b->order; });
  return result;
}

// One execution of an access: enters what encloses it, from a depth on with variables of its own.
class Order::Instance {
 public:
  Instance(Ranges& scope, const Event& e, const Around& around) : scope_(scope), e_(e), around_(around) {}
  Substitution values;  // variables that are others here

  void enter_loop(size_t depth) {  // what is around the place at this depth
    for (size_t i = 0; i < depth; ++i) lets_at(i), enter(around_.places[i]->around);
    lets_at(depth);
  }
  void enter() {
    enter_loop(around_.places.size());
    if (e_.guard) scope_.assume(own(e_.guard));
  }
  // After `first`: lets down to the depth `shared` have one value in both, places from `from` on are entered anew.
  void enter_after(const Around& first, size_t shared, size_t from) {
    for (const Forward::Definition* let : around_.lets)
      if (depth_of(let->place) <= shared && !first.has(let)) scope_.enter(*let->let.as<Let>());
    for (size_t depth = shared + 1; depth <= from; ++depth) lets_at(depth);
    for (size_t i = from; i < around_.places.size(); ++i) enter(around_.places[i]->around), lets_at(i + 1);
    if (e_.guard) scope_.assume(own(e_.guard));
  }
  std::vector<Expr> index() const {
    std::vector<Expr> result;
    for (const Expr& e : e_.index) result.push_back(own(e));
    return result;
  }
  Expr own(const Expr& e) const { return values.empty() ? e : substitute(e, values); }

 private:
  void lets_at(size_t depth) {
    for (const Forward::Definition* let : around_.lets) {
      if (depth_of(let->place) != depth) continue;
      const Let& n = *let->let.as<Let>();
      const Var v = values.empty() ? n.var : make_var(n.var.name, n.var.type);
      scope_.enter(*let_of(v, own(n.value)).as<Let>());
      if (!values.empty()) values[n.var.id] = var(v);
    }
  }
  static Stmt let_of(const Var& v, const Expr& value) { return let(v, value, block({})); }
  void enter(const Enclosing& around) {
    if (const For* n = around.stmt.as<For>()) {
      const Var v = values.empty() ? n->var : make_var(n->var.name, n->var.type);
      scope_.enter(*for_loop(v, own(n->begin), own(n->extent), n->kind, block({})).as<For>());
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
  const Around& around_;
};

size_t Order::common(const Event& a, const Event& b) {
  const std::vector<const Place*>&x = around(a).places, &y = around(b).places;
  size_t n = 0;
  while (n < x.size() && n < y.size() && x[n] == y[n]) ++n;
  return n;
}

// The statements of the path from `depth` on around a statement that accesses the same element, and no other.
Stmt Order::alone(const Event& e, size_t depth) {
  Stmt s;
  if (e.kind == Event::read)
    s = let(make_var("read", {e.buffer->dtype, 1}), load(e.buffer, e.index), block({}));
  else
    s = store(e.buffer, e.index, zero({e.buffer->dtype, 1}));
  if (e.guard) s = if_then(e.guard, s);
  const Around& all = around(e);
  for (size_t i = all.places.size();; --i) {
    for (size_t k = all.lets.size(); k-- > 0;)
      if (const Let& n = *all.lets[k]->let.as<Let>(); depth_of(all.lets[k]->place) == i) s = let(n.var, n.value, s);
    if (i == depth) return s;
    s = with_body(all.places[i - 1]->around, s);
  }
}

// Whether b, in a later iteration than a of the loop at this depth of both paths, may access the same element.
bool Order::may_follow_in_loop(const Event& a, const Event& b, size_t depth) {
  const Around &of_a = around(a), &of_b = around(b);
  const For& loop = *of_a.places[depth]->around.stmt.as<For>();
  // Each iteration has a buffer of its own.
  if (a.buffer->role == Role::temp && depth_of(forward_.place_of_alloc(a.buffer)) > depth) return false;
  {
    const Ranges::Scope inner(scope_);
    Instance first(scope_, a, of_a);
    first.enter();
    Instance second(scope_, b, of_b);
    const Var gap = make_var("gap");
    const Expr i = var(loop.var);
    const Expr left = index_sub(index_add(loop.begin, loop.extent), index_add(i, 1));
    scope_.enter(*for_loop(gap, 0, left, ForKind::serial, block({})).as<For>());
    second.values[loop.var.id] = index_add(index_add(i, var(gap)), 1);
    second.enter_after(of_a, depth, depth + 1);
    if (differ(scope_, a.index, second.index())) return false;
  }
  return !apart_in_all_iterations(a, b, depth);
}

// The same within one iteration of all loops around both.
bool Order::may_follow_here(const Event& a, const Event& b) {
  const Around &of_a = around(a), &of_b = around(b);
  const size_t depth = common(a, b);
  if (depth < of_a.places.size() && depth < of_b.places.size() &&
      of_a.places[depth]->around.stmt.same_as(of_b.places[depth]->around.stmt))
    return false;  // two sides of an If
  const Ranges::Scope inner(scope_);
  Instance first(scope_, a, of_a);
  first.enter();
  Instance second(scope_, b, of_b);
  const Var same = make_var("same");  // any: that the others get names of their own
  second.values[same.id] = var(same);
  second.enter_after(of_a, depth, depth);
  return !differ(scope_, a.index, second.index());
}

// Whether b may access an element after a has.
bool Order::may_follow(const Event& a, const Event& b) {
  return (&a < &b && may_follow_here(a, b)) || carrying_loop(a, b);  // events stand in the order of the text
}

const For* Order::carrying_loop(const Event& a, const Event& b) {
  const size_t depth = common(a, b);
  for (size_t k = 0; k < depth; ++k)
    if (const For* n = around(a).places[k]->around.stmt.as<For>(); n && may_follow_in_loop(a, b, k)) return n;
  return nullptr;
}

bool Order::apart_in_all_iterations(const Event& a, const Event& b, size_t depth) {
  if (!a.writes() && !b.writes()) return true;
  const For& loop = *around(a).places[depth]->around.stmt.as<For>();
  const Ranges::Scope inner(scope_);
  Instance(scope_, a, around(a)).enter_loop(depth);
  for (const Forward::Definition* let : around(b).lets)
    if (depth_of(let->place) <= depth && !around(a).has(let)) scope_.enter(*let->let.as<Let>());
  const Stmt both = block({alone(a, depth + 1), alone(b, depth + 1)});
  return loop_carried_conflict(*for_loop(loop.var, loop.begin, loop.extent, ForKind::serial, both).as<For>(), scope_)
      .empty();
}

// Accesses whose indices are different constants in some dim share no element.
std::vector<Order::Accesses> Order::that_may_share_elements(const Buffer& buffer) const {
  const Accesses all = forward_.events_of(buffer);
  std::vector<size_t> dims;
  for (size_t d = 0; d < buffer->dims.size(); ++d)
    if (std::all_of(all.begin(), all.end(), [&](const Event* e) { return as_int(e->index[d]).has_value(); }))
      dims.push_back(d);
  std::map<std::vector<int64_t>, Accesses> groups;
  for (const Event* e : all) {
    std::vector<int64_t> at;
    for (const size_t d : dims) at.push_back(*as_int(e->index[d]));
    groups[at].push_back(e);
  }
  std::vector<Accesses> result;
  for (auto& [at, group] : groups) result.push_back(std::move(group));
  return result;
}

void Order::require_final(const Buffer& buffer) {
  if (!final_.insert(buffer->id).second) return;
  for (const Accesses& own : that_may_share_elements(buffer))
    for (const Event* b : own)
      for (const Event* a : b->writes() ? own : Accesses()) {
        if (a->kind != Event::read || !may_follow(*a, *b)) continue;
        const For* loop = carrying_loop(*a, *b);
        if (a->stmt.same_as(b->stmt) && !loop)
          forward_.refuse("buffer " + buffer->name +
                          " is read and stored to by one statement: " + advice(buffer, loop));
        forward_.refuse("buffer " + buffer->name + " is written " + in_loop(loop) +
                        " after it was read, and the gradient needs what was read: " + advice(buffer, loop));
      }
}

void Order::require_single_assignment() {
  std::unordered_set<int64_t> seen;
  for (const Event& e : forward_.events())
    if (e.writes() && forward_.is_active(e.buffer) && seen.insert(e.buffer->id).second) {
      require_single_assignment(e.buffer);
      require_final(e.buffer);
    }
}

void Order::require_single_assignment(const Buffer& buffer) {
  for (const Event* e : forward_.events_of(buffer))
    if (e->kind == Event::accumulate &&
        !same_operation(*e->stmt.as<Accumulate>(), *forward_.writes_of(buffer).accumulate))
      forward_.refuse("buffer " + buffer->name + " is accumulated into by more than one operation");
  const auto through_let = [&](const Expr& i) {
    return any_of(i, [&](const Expr& e) {
      const Expr* value = e.as<Var>() ? forward_.let_value(e.as<Var>()->id) : nullptr;
      return value && has_load(*value);
    });
  };
  for (const Accesses& own : that_may_share_elements(buffer))
    for (const Event* b : own)
      for (const Event* a : b->kind == Event::store ? own : Accesses()) {
        if (!is_active_write(forward_, *a) || !may_follow(*a, *b)) continue;
        const For* loop = carrying_loop(*a, *b);
        const bool scatter =
            std::any_of(b->index.begin(), b->index.end(), [&](const Expr& i) { return has_load(i) || through_let(i); });
        if (loop && scatter)
          forward_.refuse("two iterations of loop " + loop->var.name + " may store to the same element of " +
                          buffer->name +
                          "; the gradient would depend on which was last: declare the index injective, or accumulate");
        forward_.refuse("buffer " + buffer->name + " may be stored to " + in_loop(loop) +
                        ", over a value that has a gradient: " + advice(buffer, loop));
      }
}

std::unordered_set<int64_t> Order::carried_loops() {
  std::unordered_set<int64_t> carried, seen;
  for (const Event& written : forward_.events()) {
    if (!written.writes() || !forward_.is_active(written.buffer) || !seen.insert(written.buffer->id).second) continue;
    for (const Accesses& own : that_may_share_elements(written.buffer))
      for (const Event* a : own)
        for (const Event* b : a->writes() ? own : Accesses()) {
          if (b->kind != Event::read || !b->carries) continue;
          const size_t depth = common(*a, *b);
          for (size_t k = 0; k < depth; ++k)
            if (const For* n = around(*a).places[k]->around.stmt.as<For>();
                n && !carried.contains(n->var.id) && may_follow_in_loop(*a, *b, k))
              carried.insert(n->var.id);
        }
  }
  return carried;
}

}  // namespace gradloom::ir
