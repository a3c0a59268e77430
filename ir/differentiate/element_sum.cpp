#include "ir/differentiate/element_sum.h"

#include <algorithm>
#include <functional>
#include <unordered_set>

#include "ir/index_math.h"
#include "ir/rewrite.h"

namespace gradloom::ir {
namespace {

Expr guard_of(const Solved& s) {
  Expr all;
  for (const Expr& g : s.inverse.guards) all = both(all, g);
  return all;
}

// The loops that are summed over, under which all guards hold, and the statements around the term in these.
Stmt around(const Solved& s, Stmt inner) {
  const Term& t = *s.term;
  for (size_t i = t.path.size(); i-- > t.first_loop;)
    if (!t.path[i].stmt.as<For>() && !t.path[i].stmt.as<Alloc>()) inner = with_body(t.path[i], inner);
  if (const Expr guard = guard_of(s)) inner = if_then(guard, inner);
  for (size_t i = s.inverse.summed.size(); i-- > 0;) {
    const For& n = *s.inverse.summed[i];
    inner = for_loop(n.var, n.begin, n.extent, ForKind::serial, inner);
  }
  return inner;
}

Expr value_of(const Solved& s) {
  const Accumulate& n = s.term->node();
  return n.op == AccumulateOp::fma ? n.value * n.factor : n.value;
}

// What was only widened is itself again, a NaN's bits, too.
Expr rounded(DType to, const Expr& total) {
  const Cast* widened = total.as<Cast>();
  return widened && widened->value.dtype() == to && is_storage_float(to) ? widened->value : cast(to, total);
}

// What is only read where the guards hold: by a load with that guard, elsewhere 0. Absent for any other value.
Expr guarded_load(const Solved& s) {
  const auto in_nest = s.term->path.begin() + static_cast<std::ptrdiff_t>(s.term->first_loop);
  const bool lets = std::any_of(in_nest, s.term->path.end(), [](const Enclosing& e) { return e.stmt.as<Let>(); });
  const Expr value = value_of(s);
  const Cast* widened = value.as<Cast>();
  const Load* n = (widened ? widened->value : value).as<Load>();
  if (!n || n->guard || lets) return {};
  // Its index is evaluated everywhere.
  for (const Expr& i : n->index)
    if (has_load(i) || has_variable_divisor(i)) return {};
  const Expr all = load(n->buffer, n->index, guard_of(s), zero({n->buffer->dtype, 1}));
  const Expr read = substitute(all, s.inverse.values);
  return widened ? cast(value.dtype(), read) : read;
}

// One value after the other, each with lets of its own; those that are equal are shared.
Stmt plain_sum(const std::vector<Solved>& terms, const std::function<Stmt(const Expr&)>& stored) {
  struct Bound {
    const StmtNode* let;
    Expr value;
    Var var;
  };
  std::vector<Bound> lets;
  Expr total;
  for (const Solved& s : terms) {
    Substitution own = s.inverse.values;
    for (size_t i = s.term->first_loop; i < s.term->path.size(); ++i) {
      const Stmt& around = s.term->path[i].stmt;
      const Let* n = around.as<Let>();
      if (!n) continue;
      const Expr value = substitute(n->value, own);
      const auto same = std::find_if(lets.begin(), lets.end(),
                                     [&](const Bound& b) { return b.let == around.get() && equal(b.value, value); });
      const Var v = same == lets.end() ? make_var(n->var.name, n->var.type) : same->var;
      if (same == lets.end()) lets.push_back({around.get(), value, v});
      own[n->var.id] = var(v);
    }
    Expr value = substitute(value_of(s), own);
    if (s.guard) value = select(substitute(s.guard, own), value, zero(value.type()));
    total = total ? total + value : value;
  }
  Stmt result = stored(total);
  std::unordered_set<int64_t> used;
  const auto use = [&](const Expr& e) {
    if (e.as<Var>()) used.insert(e.as<Var>()->id);
  };
  walk(result, {}, use);
  for (size_t i = lets.size(); i-- > 0;) {
    if (!used.contains(lets[i].var.id)) continue;
    walk(lets[i].value, use);
    result = let(lets[i].var, lets[i].value, result);
  }
  return result;
}

// Whether it is one value, or a sum over loops without checks.
bool is_declarable(const Solved& s) {
  if (s.plain()) return true;
  const bool checks = std::any_of(s.term->path.begin() + static_cast<std::ptrdiff_t>(s.term->first_loop),
                                  s.term->path.end(), [](const Enclosing& e) { return e.stmt.as<Check>(); });
  return !checks && !s.inverse.summed.empty();
}

// Whether of what moves along the innermost variable more is read along memory than across it.
bool is_contiguous(const Reduce& r) {
  const Expr last = var(r.ranges.back().var);
  int along = 0, across = 0;
  const auto of = [&](const Expr& e) {
    if (!e) return;
    walk(e, [&](const Expr& x) {
      const Load* l = x.as<Load>();
      for (size_t d = 0; l && d < l->index.size(); ++d)
        if (linear(l->index[d]).coefficient(last) != 0) ++(d + 1 == l->index.size() ? along : across);
    });
  };
  for (const Reduce::Definition& d : r.lets) of(d.value);
  of(r.value), of(r.factor);
  return along > across;
}

Stmt declared_sum(const Solved& s, const Buffer& to, const std::vector<Expr>& at) {
  const Accumulate& n = s.term->node();
  Reduce r{.ranges = {},
           .buffer = to,
           .index = at,
           .op = n.op,
           .order = {},
           .lets = {},
           .value = {},
           .factor = {},
           .guard = {}};
  Substitution own;
  for (const For* f : s.inverse.summed) {
    const Var v = make_var(f->var.name, f->var.type);
    r.ranges.push_back({v, f->begin, f->extent});
    own[f->var.id] = var(v);
  }
  const Substitution summed = own;
  for (const auto& [id, value] : s.inverse.values) own[id] = substitute(value, summed);
  r.guard = substitute(guard_of(s), own);
  // What depends on a definition selects the value: the guard is evaluated before them.
  Expr mask;
  const auto restrict = [&](const Expr& condition) {
    const bool defined = std::any_of(r.lets.begin(), r.lets.end(),
                                     [&](const Reduce::Definition& d) { return mentions(condition, d.var.id); });
    Expr& all = defined ? mask : r.guard;
    all = both(all, condition);
  };
  for (size_t i = s.term->first_loop; i < s.term->path.size(); ++i) {
    const Stmt& x = s.term->path[i].stmt;
    if (const Let* l = x.as<Let>()) {
      const Var v = make_var(l->var.name, l->var.type);
      r.lets.push_back({v, substitute(l->value, own)});
      own[l->var.id] = var(v);
    } else if (const If* c = x.as<If>()) {
      restrict(substitute(s.term->path[i].otherwise ? unary(UnaryOp::bit_not, c->condition) : c->condition, own));
    }
  }
  if (s.guard) restrict(substitute(s.guard, own));
  r.value = substitute(n.value, own);
  if (n.factor) r.factor = substitute(n.factor, own);
  if (mask) r.value = select(mask, r.value, zero(r.value.type()));
  r.order = SumOrder::in_tree(is_contiguous(r) ? 256 : 16);
  return reduce(std::move(r));
}

Stmt declared_sums(const std::vector<Solved>& terms, const std::vector<Expr>& at, const Buffer& to, DType dtype,
                   const std::function<Stmt(const Expr&)>& stored) {
  if (terms.size() == 1 && to->dtype == dtype) return declared_sum(terms[0], to, at);
  std::vector<Stmt> parts;
  std::vector<Buffer> totals;
  Expr total;
  for (const Solved& s : terms) {
    totals.push_back(make_buffer({.name = "total", .dtype = dtype, .dims = {1}, .space = Space::registers}));
    const auto put = [&](const Expr& value) { return store(totals.back(), {0}, value); };
    parts.push_back(s.plain() ? plain_sum({s}, put) : declared_sum(s, totals.back(), {0}));
    const Expr part = load(totals.back(), {0});
    total = total ? total + part : part;
  }
  parts.push_back(stored(total));
  Stmt result = block(std::move(parts));
  for (size_t i = totals.size(); i-- > 0;) result = alloc(totals[i], result);
  return result;
}

}  // namespace

Stmt element_sum(const std::vector<Solved>& terms, const std::vector<Expr>& at, const Buffer& to,
                 const Adjoint& adjoint) {
  const Type sum{adjoint.sums->dtype, 1};
  const auto stored = [&](const Expr& total) { return store(to, at, rounded(to->dtype, total)); };
  constexpr size_t most_terms = 500;  // of one expression, whose depth is limited
  if (terms.size() <= most_terms &&
      std::all_of(terms.begin(), terms.end(), [](const Solved& s) { return s.plain(); }))
    return plain_sum(terms, stored);
  if (terms.size() == 1 && terms[0].inverse.summed.empty() && !terms[0].conditional()) {
    const Solved& s = terms[0];
    if (const Expr value = guarded_load(s)) return stored(value);
    const Stmt value = substitute(around(s, stored(value_of(s))), s.inverse.values);
    const If& guarded = *value.as<If>();
    return if_then(guarded.condition, guarded.then_case, stored(zero(sum)));
  }
  if (adjoint.order == SumOrder::tree && std::all_of(terms.begin(), terms.end(), is_declarable))
    return declared_sums(terms, at, to, adjoint.sums->dtype, stored);
  const Buffer acc = make_buffer({.name = "acc", .dtype = sum.dtype, .dims = {1}, .space = Space::registers});
  std::vector<Stmt> parts{store(acc, {0}, zero(sum))};
  for (const Solved& s : terms) {
    const Accumulate& n = s.term->node();
    const Stmt part = around(s, accumulate(acc, {0}, n.op, n.value, n.factor, s.guard));
    parts.push_back(substitute(part, s.inverse.values));
  }
  parts.push_back(stored(load(acc, {0})));
  return alloc(acc, block(std::move(parts)));
}

}  // namespace gradloom::ir
