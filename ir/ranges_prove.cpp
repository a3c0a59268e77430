// Conditions: what is assumed inside a guard, and what follows from it.
#include <algorithm>

#include "ir/linear.h"
#include "ir/ranges.h"
#include "ir/rewrite.h"

namespace gradloom::ir {
namespace {

Linear scaled(const Linear& l, int64_t factor, int64_t constant = 0) {
  Linear r;
  r.constant = constant;
  r.add(l, factor);
  return r;
}

Linear minus(const Linear& a, const Linear& b) {
  Linear r = a;
  r.add(b, -1);
  return r;
}

bool same_terms(const Linear& a, const Linear& b) {
  if (a.terms.size() != b.terms.size()) return false;
  return std::all_of(a.terms.begin(), a.terms.end(), [&](const auto& t) { return b.coefficient(t.first) == t.second; });
}

bool same(const Linear& a, const Linear& b) { return a.constant == b.constant && same_terms(a, b); }

// The comparison as "l >= 0" for lt, le, gt, ge.
Linear as_inequality(BinaryOp op, const Linear& a, const Linear& b) {
  switch (op) {
    case BinaryOp::lt: return scaled(minus(b, a), 1, -1);
    case BinaryOp::le: return minus(b, a);
    case BinaryOp::gt: return scaled(minus(a, b), 1, -1);
    default: return minus(a, b);
  }
}

bool is_order(BinaryOp op) { return op == BinaryOp::lt || op == BinaryOp::le || op == BinaryOp::gt || op == BinaryOp::ge; }

bool is_integer(const Expr& e) { return is_int(e.dtype()) || e.dtype() == DType::boolean; }

// c * floor_div(x, c) + floor_mod(x, c) is x.
void recombine(Linear& l, const Ranges& scope) {
  for (size_t i = 0; i < l.terms.size(); ++i) {
    const Binary* mod = l.terms[i].first.as<Binary>();
    const int64_t k = l.terms[i].second;
    if (!mod || mod->op != BinaryOp::floor_mod || mod->a.dtype() != DType::i64) continue;
    const std::optional<int64_t> c = as_int(mod->b);
    if (!c) continue;
    for (size_t j = 0; j < l.terms.size(); ++j) {
      const Binary* div = l.terms[j].first.as<Binary>();
      int64_t scaled_k;
      if (!div || div->op != BinaryOp::floor_div || !is_const(div->b, *c) || !equal(div->a, mod->a)) continue;
      if (__builtin_mul_overflow(k, *c, &scaled_k) || l.terms[j].second != scaled_k) continue;
      const Expr a = mod->a, mod_term = l.terms[i].first, div_term = l.terms[j].first;
      l.add(mod_term, -k), l.add(div_term, -scaled_k);
      l.add(scope.expand(a), k);
      return recombine(l, scope);
    }
  }
}

}  // namespace

bool Ranges::from_memory(const Expr& e) const {
  bool memory = false;
  walk(e, [&](const Expr& x) {
    if (const Var* v = x.as<Var>()) {
      const Entry* entry = find(v->id);
      memory |= entry && entry->memory;
    }
    memory |= x.as<Load>() != nullptr;
  });
  return memory;
}

bool Ranges::trusted(const Linear& l) const {
  for (const auto& [term, coefficient] : l.terms) {
    if (const Var* v = term.as<Var>()) {
      const Entry* entry = find(v->id);
      if (!entry || !entry->memory) continue;
    } else if (!from_memory(term)) {
      continue;
    }
    const Range r = raw_range(term);
    bool below = r.min.has_value(), above = r.max.has_value();
    for (const Linear& q : assumed_) {
      if (below && above) break;
      const int64_t c = q.coefficient(term);
      below |= c > 0, above |= c < 0;
    }
    const Load* load = term.as<Load>();
    if (load && !load->guard) below |= static_cast<bool>(load->buffer->facts.min), above |= static_cast<bool>(load->buffer->facts.max);
    if (!below || !above) return false;
  }
  return true;
}

bool Ranges::may_wrap(const Linear& side) const {
  const bool plain = side.terms.empty() || (side.terms.size() == 1 && side.constant == 0 && side.terms[0].second == 1);
  return !plain && !trusted(side);
}

void Ranges::assume(const Expr& condition) { assume(condition, true); }

void Ranges::assume(const Expr& condition, bool truth) {
  if (const Broadcast* b = condition.as<Broadcast>()) return assume(b->value, truth);
  if (const Unary* u = condition.as<Unary>(); u && u->op == UnaryOp::bit_not) return assume(u->a, !truth);
  if (const Intrinsic* i = condition.as<Intrinsic>(); i && i->op == IntrinsicOp::all && truth) return assume(i->args[0], true);
  if (const Intrinsic* i = condition.as<Intrinsic>(); i && i->op == IntrinsicOp::any && !truth) return assume(i->args[0], false);
  if (!is_stable(condition)) return;
  if (const Var* v = condition.as<Var>()) {
    conditions_.emplace_back(condition, truth);
    const Entry* entry = find(v->id);
    if (entry && entry->value && is_stable(entry->value)) assume(Expr(entry->value), truth);
    return;
  }
  if (const Binary* b = condition.as<Binary>()) {
    if (b->a.dtype() == DType::boolean && b->op == (truth ? BinaryOp::bit_and : BinaryOp::bit_or)) {
      assume(b->a, truth);
      return assume(b->b, truth);
    }
    if (is_comparison(b->op) && is_integer(b->a)) return assume_comparison(*b, truth);
  }
  if (!condition.as<Const>()) conditions_.emplace_back(condition, truth);
}

void Ranges::assume_comparison(const Binary& n, bool truth) {
  BinaryOp op = n.op;
  if (!truth) {
    static constexpr BinaryOp negated[] = {BinaryOp::ne, BinaryOp::eq, BinaryOp::ge, BinaryOp::gt, BinaryOp::le, BinaryOp::lt};
    op = negated[static_cast<int>(op) - static_cast<int>(BinaryOp::eq)];
  }
  const Linear a = expand(n.a), b = expand(n.b);
  // Arithmetic on what memory holds may have wrapped: such a condition says nothing of its terms.
  if (may_wrap(a) || may_wrap(b)) return conditions_.emplace_back(binary(op, n.a, n.b), true), void();
  if (is_order(op)) return add_inequality(as_inequality(op, a, b));
  const Linear d = minus(a, b);
  if (op == BinaryOp::eq) {
    add_inequality(d);
    return add_inequality(scaled(d, -1));
  }
  // Not equal: it helps at the end of a range only.
  const Range r = of(d);
  if (r.min && *r.min == 0) return add_inequality(scaled(d, 1, -1));
  if (r.max && *r.max == 0) return add_inequality(scaled(d, -1, -1));
  conditions_.emplace_back(binary(BinaryOp::ne, n.a, n.b), true);
}

void Ranges::add_inequality(Linear l) {
  if (l.terms.empty() || !l.exact) return;
  for (const Linear& q : assumed_)
    if (same(q, l)) return;
  tighten(l);
  assumed_.push_back(l);
  add_axioms(l, assumed_, 3);
}

// l >= 0 bounds each of its variables by the others' ranges.
void Ranges::tighten(const Linear& l) {
  for (const auto& [term, coefficient] : l.terms) {
    const Var* v = term.as<Var>();
    if (!v) continue;
    Linear rest = l;
    rest.add(term, -coefficient);
    if (!rest.exact || (rest.terms.size() > 0 && !trusted(rest))) continue;
    const Range r = of(rest);
    if (!r.max || *r.max == INT64_MIN || coefficient == INT64_MIN) continue;
    Range now = raw_range(term);
    const int64_t m = *r.max, size = coefficient > 0 ? coefficient : -coefficient;
    if (coefficient > 0) {  // term >= ceil(-m / size)
      const int64_t bound = -m / size + (-m > 0 && -m % size != 0);
      if (now.min && *now.min >= bound) continue;
      now.min = bound;
    } else {  // term <= floor(m / size)
      const int64_t bound = m / size - (m < 0 && m % size != 0);
      if (now.max && *now.max <= bound) continue;
      now.max = bound;
    }
    set(v->id, now);
  }
}

// What the meaning of l's terms adds: floor_div by a constant, floor_mod, min, max, and facts of loads.
void Ranges::add_axioms(const Linear& l, std::vector<Linear>& to, int depth) const {
  if (depth == 0) return;
  auto known = [&](const Linear& q) {
    auto is_q = [&](const Linear& other) { return same(other, q); };
    return std::any_of(to.begin(), to.end(), is_q) || (&to != &assumed_ && std::any_of(assumed_.begin(), assumed_.end(), is_q));
  };
  auto add = [&](Linear q) {
    if (!q.exact || q.terms.empty() || known(q)) return;
    to.push_back(q);
    add_axioms(q, to, depth - 1);
  };
  for (const auto& [term, coefficient] : l.terms) {
    if (const Load* load = term.as<Load>()) {
      const Facts& facts = load->buffer->facts;
      if (load->guard) continue;
      Linear value;
      value.add(term, 1);
      if (facts.min && !as_int(facts.min)) add(minus(value, expand(facts.min)));
      if (facts.max && !as_int(facts.max)) add(minus(expand(facts.max), value));
      continue;
    }
    const Binary* b = term.as<Binary>();
    if (!b || b->a.dtype() != DType::i64) continue;
    Linear value;
    value.add(term, 1);
    switch (b->op) {
      case BinaryOp::floor_div:
        if (std::optional<int64_t> c = as_int(b->b); c && *c > 0) {
          const Linear rest = minus(expand(b->a), scaled(value, *c));
          add(rest);
          add(scaled(rest, -1, *c - 1));
        }
        break;
      case BinaryOp::floor_mod:
        if (!as_int(b->b)) {
          const Range divisor = of(b->b);
          if (divisor.min && *divisor.min > 0) add(scaled(minus(expand(b->b), value), 1, -1));
        }
        break;
      case BinaryOp::min:
        add(minus(expand(b->a), value));
        add(minus(expand(b->b), value));
        break;
      case BinaryOp::max:
        add(minus(value, expand(b->a)));
        add(minus(value, expand(b->b)));
        break;
      default: break;
    }
  }
}

bool Ranges::nonnegative(const Linear& l) const {
  if (!l.exact) return false;
  for (const Linear& q : assumed_)
    if (l.constant >= q.constant && same_terms(l, q)) return true;
  if (!trusted(l)) return false;
  const Range r = of(l);
  if (r.min && *r.min >= 0) return true;
  if (l.terms.empty() || (r.max && *r.max < 0)) return false;
  std::vector<Linear> axioms;
  add_axioms(l, axioms, 3);
  int budget = 24;
  return prove(l, axioms, 4, budget);
}

bool Ranges::prove(Linear l, const std::vector<Linear>& axioms, int depth, int& budget) const {
  if (!l.exact) return false;
  recombine(l, *this);
  const Range r = of(l);
  if (r.min && *r.min >= 0) return true;
  if (depth == 0 || --budget <= 0) return false;
  // Only what is unbounded must go; without such a term, any may.
  const Expr* pivot = nullptr;
  for (const auto& [term, coefficient] : l.terms) {
    const Range t = raw_range(term);
    if (!(coefficient > 0 ? t.min : t.max)) pivot = &term;
  }
  for (const std::vector<Linear>* list : {&assumed_, &axioms})
    for (const Linear& q : *list)
      for (const auto& [term, coefficient] : l.terms) {
        if (pivot && pivot != &term) continue;
        const int64_t c = q.coefficient(term);
        if (c == 0 || (c > 0) != (coefficient > 0) || coefficient % c != 0) continue;
        Linear next = l;
        next.add(q, -(coefficient / c));
        if (prove(std::move(next), axioms, depth - 1, budget)) return true;
        if (budget <= 0) return false;
      }
  // By cases.
  for (const auto& [term, coefficient] : l.terms) {
    const Binary* b = term.as<Binary>();
    const Select* s = term.as<Select>();
    if (term.dtype() != DType::i64 || !(s || (b && (b->op == BinaryOp::min || b->op == BinaryOp::max)))) continue;
    bool all = true;
    for (const Expr& choice : {s ? s->a : b->a, s ? s->b : b->b}) {
      Linear next = l;
      next.add(term, -coefficient);
      next.add(expand(choice), coefficient);
      all = all && prove(std::move(next), axioms, depth - 1, budget);
    }
    return all;
  }
  return false;
}

std::optional<bool> Ranges::compare(const Binary& n) const {
  if (!is_integer(n.a)) return std::nullopt;
  const Linear a = expand(n.a), b = expand(n.b);
  if (may_wrap(a) || may_wrap(b)) return std::nullopt;
  if (is_order(n.op)) {
    const Linear l = as_inequality(n.op, a, b);
    if (nonnegative(l)) return true;
    if (nonnegative(scaled(l, -1, -1))) return false;
    return std::nullopt;
  }
  const Linear d = minus(a, b);
  const Range r = of(d);
  const bool equal_means = n.op == BinaryOp::eq;
  if (d.exact && d.terms.empty()) return (d.constant == 0) == equal_means;
  if (r.single() && *r.min == 0 && trusted(d)) return equal_means;
  if (nonnegative(scaled(d, 1, -1)) || nonnegative(scaled(d, -1, -1))) return !equal_means;
  if (nonnegative(d) && nonnegative(scaled(d, -1))) return equal_means;
  return std::nullopt;
}

std::optional<bool> Ranges::proves(const Expr& condition) const {
  if (!condition || condition.dtype() != DType::boolean) return std::nullopt;
  if (const Const* c = condition.as<Const>()) return c->bits != 0;
  if (const Broadcast* b = condition.as<Broadcast>()) return proves(b->value);
  if (const Unary* u = condition.as<Unary>(); u && u->op == UnaryOp::bit_not) {
    const std::optional<bool> a = proves(u->a);
    return a ? std::optional<bool>(!*a) : std::nullopt;
  }
  if (const Intrinsic* i = condition.as<Intrinsic>(); i && (i->op == IntrinsicOp::all || i->op == IntrinsicOp::any)) return proves(i->args[0]);
  if (const Binary* b = condition.as<Binary>()) {
    if (b->op == BinaryOp::bit_and || b->op == BinaryOp::bit_or) {
      const bool decides = b->op == BinaryOp::bit_or;
      const std::optional<bool> x = proves(b->a);
      if (x == decides) return x;
      const std::optional<bool> y = proves(b->b);
      if (y == decides) return y;
      return x && y ? x : std::nullopt;
    }
    if (is_comparison(b->op))
      if (std::optional<bool> result = compare(*b)) return result;
  }
  if (!conditions_.empty() && is_stable(condition))
    for (const auto& [known, truth] : conditions_)
      if (equal(known, condition)) return truth;
  if (const Var* v = condition.as<Var>()) {
    const Entry* entry = find(v->id);
    if (!entry) return std::nullopt;
    if (entry->range.single()) return *entry->range.min != 0;
    if (entry->value && entry->expandable) return proves(Expr(entry->value));
  }
  return std::nullopt;
}

}  // namespace gradloom::ir
