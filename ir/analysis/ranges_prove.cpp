// Consequences of the assumptions: whether sums stay within i64, what is nonnegative, which conditions hold.
#include <algorithm>

#include "ir/analysis/linear.h"
#include "ir/analysis/ranges.h"
#include "ir/rewrite.h"

namespace gradloom::ir {

bool Ranges::from_memory(const Expr& e) const {
  return any_of(e, [&](const Expr& x) {
    const Var* v = x.as<Var>();
    const Entry* entry = v ? find(v->id) : nullptr;
    return x.as<Load>() || (entry && entry->memory);
  });
}

// A constant of the opposite sign only helps.
bool Ranges::fits_above(const Linear& l) const {
  if (!l.exact) return false;
  if (interval(l).high <= INT64_MAX) return true;
  return nonnegative(scaled(without_constant(l), -1, INT64_MAX - std::max<int64_t>(l.constant, 0)));
}

bool Ranges::fits_below(const Linear& l) const {
  if (!l.exact) return false;
  if (interval(l).low >= INT64_MIN) return true;
  return nonnegative(scaled(without_constant(l), 1, INT64_MAX + std::min<int64_t>(l.constant, 0)));
}

bool Ranges::fits(const Linear& l) const {
  return l.exact && (l.terms.empty() || l.is_term() || interval(l).empty() || (fits_above(l) && fits_below(l)));
}

bool Ranges::sum_fits(const Expr& a, const Expr& b, int64_t more) const {
  Linear sum = form(a);
  sum.add(form(b));
  sum.add(Linear{.constant = more});
  return fits(sum);
}

Linear Ranges::form(const Expr& e, int64_t keep) const {
  Linear l = expand_wrapped(e, keep);
  return e.dtype() != DType::i64 || fits(l) ? l : single_term(e);
}

Linear Ranges::quick_form(const Expr& e) const {
  Linear l = expand_wrapped(e);
  return e.dtype() != DType::i64 || l.is_term() || fits_i64(interval(l)) ? l : single_term(e);
}

bool Ranges::nonnegative(const Linear& l) const {
  if (!l.exact) return false;
  for (const Linear& q : assumed_)
    if (l.constant >= q.constant && same_terms(l, q)) return true;
  const Interval v = interval(l);
  if (v.empty() || v.low >= 0) return true;
  if (l.terms.empty() || v.high < 0) return false;
  std::vector<Linear> axioms;
  add_axioms(l, axioms, 3);
  int budget = 24;
  return prove(l, axioms, 4, budget);
}

// c * floor_div(x, c) + floor_mod(x, c) is x, for c > 0.
void Ranges::recombine(Linear& l) const {
  for (size_t i = 0; i < l.terms.size(); ++i) {
    const auto [mod_term, k] = l.terms[i];
    const Binary* mod = mod_term.as<Binary>();
    if (!mod || mod->op != BinaryOp::floor_mod || mod->a.dtype() != DType::i64 || k == INT64_MIN) continue;
    const Broadcast* lanes = mod->b.as<Broadcast>();
    const std::optional<int64_t> c = as_int(lanes ? lanes->value : mod->b);
    int64_t scaled_k;
    if (!c || *c < 1 || __builtin_mul_overflow(k, *c, &scaled_k) || scaled_k == INT64_MIN) continue;
    for (const auto& [div_term, coefficient] : l.terms) {
      const Binary* div = div_term.as<Binary>();
      if (!div || div->op != BinaryOp::floor_div || !equal(div->b, mod->b) || !equal(div->a, mod->a) ||
          coefficient != scaled_k)
        continue;
      Linear whole = l;
      whole.add(mod_term, -k), whole.add(div_term, -scaled_k);
      whole.add(quick_form(mod->a), k);
      l = std::move(whole);
      return recombine(l);
    }
  }
}

bool Ranges::prove(Linear l, const std::vector<Linear>& axioms, int depth, int& budget) const {
  if (!l.exact) return false;
  recombine(l);
  const Interval v = interval(l);
  if (v.empty() || v.low >= 0) return true;
  if (depth == 0 || --budget <= 0) return false;
  // A term with a very negative (or unbounded) lower bound must be eliminated first, as no other term can offset it;
  // without such a term, any may be.
  const Expr* pivot = nullptr;
  Wide furthest = -(Wide{1} << 40);
  for (const auto& [term, coefficient] : l.terms)
    if (const Wide low = multiply(term_interval(term), {coefficient, coefficient}).low; low <= furthest)
      pivot = &term, furthest = low;
  for (const std::vector<Linear>* list : {&assumed_, &axioms})
    for (const Linear& q : *list)
      for (const auto& [term, coefficient] : l.terms) {
        if (pivot && pivot != &term) continue;
        const int64_t c = q.coefficient(term);
        if (c == 0 || c == INT64_MIN || coefficient == INT64_MIN || (c > 0) != (coefficient > 0) ||
            coefficient % c != 0)
          continue;
        Linear next = l;
        next.add(q, -(coefficient / c));
        if (prove(std::move(next), axioms, depth - 1, budget)) return true;
        if (budget <= 0) return false;
      }
  // Case split.
  for (const auto& [term, coefficient] : l.terms) {
    const Binary* b = term.as<Binary>();
    const Select* s = term.as<Select>();
    if (coefficient == INT64_MIN || term.dtype() != DType::i64) continue;
    if (!s && !(b && (b->op == BinaryOp::min || b->op == BinaryOp::max))) continue;
    bool all = true;
    for (const Expr& choice : {s ? s->a : b->a, s ? s->b : b->b}) {
      Linear next = l;
      next.add(term, -coefficient);
      next.add(quick_form(choice), coefficient);
      all = all && prove(std::move(next), axioms, depth - 1, budget);
    }
    return all;
  }
  return false;
}

std::optional<bool> Ranges::compare(const Binary& n) const {
  if (!is_integer(n.a)) return std::nullopt;
  const Linear a = form(n.a), b = form(n.b);
  const Interval of_a = interval(a), of_b = interval(b);
  if (of_a.empty() || of_b.empty()) return true;  // empty: no value
  // Their difference may overflow a Linear.
  if (const std::optional<bool> result = compare_values(n.op, of_a, of_b)) return result;
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
  if (r.single() && *r.min == 0) return equal_means;
  if (nonnegative(scaled(d, 1, -1)) || nonnegative(scaled(d, -1, -1))) return !equal_means;
  if (nonnegative(d) && nonnegative(scaled(d, -1))) return equal_means;
  return std::nullopt;
}

std::optional<bool> Ranges::proves(const Expr& condition) const {
  if (!condition || condition.dtype() != DType::boolean) return std::nullopt;
  if (never_) return true;
  if (const Const* c = condition.as<Const>()) return c->bits != 0;
  if (const Broadcast* b = condition.as<Broadcast>()) return proves(b->value);
  if (const Expr one = of_one_lane(condition)) return proves(one);
  if (const Unary* u = condition.as<Unary>(); u && u->op == UnaryOp::bit_not) {
    const std::optional<bool> a = proves(u->a);
    return a ? std::optional<bool>(!*a) : std::nullopt;
  }
  if (const Intrinsic* i = condition.as<Intrinsic>(); i && (i->op == IntrinsicOp::all || i->op == IntrinsicOp::any))
    return proves(i->args[0]);
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
    if (entry->range.single()) return entry->range.low != 0;
    if (entry->value && entry->stable) return proves(Expr(entry->value));
  }
  return std::nullopt;
}

}  // namespace gradloom::ir
