// Conditions: what is assumed inside a guard, and what follows from it.
#include <algorithm>

#include "ir/analysis/linear.h"
#include "ir/analysis/ranges.h"
#include "ir/rewrite.h"

namespace gradloom::ir {
namespace {

// l * factor + constant.
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

Linear without_constant(Linear l) {
  l.constant = 0;
  return l;
}

Linear single_term(const Expr& e) {
  Linear l;
  l.lanes = e.lanes();
  l.add(e, 1);
  return l;
}

bool same_terms(const Linear& a, const Linear& b) {
  if (a.terms.size() != b.terms.size()) return false;
  return std::all_of(a.terms.begin(), a.terms.end(), [&](const auto& t) { return b.coefficient(t.first) == t.second; });
}

bool same(const Linear& a, const Linear& b) { return a.constant == b.constant && same_terms(a, b); }

// The comparison as "l >= 0" for lt, le, gt, ge.
Linear as_inequality(BinaryOp op, const Linear& a, const Linear& b) {
  switch (op) {
    case BinaryOp::lt:
      return scaled(minus(b, a), 1, -1);
    case BinaryOp::le:
      return minus(b, a);
    case BinaryOp::gt:
      return scaled(minus(a, b), 1, -1);
    default:
      return minus(a, b);
  }
}

// A comparison that is the same in all lanes, of one lane; absent: it is not.
Expr of_one_lane(const Expr& condition) {
  const Binary* n = condition.as<Binary>();
  if (!n || !is_comparison(n->op)) return {};
  const Broadcast *a = n->a.as<Broadcast>(), *b = n->b.as<Broadcast>();
  return a && b && a->value.lanes() == 1 && b->value.lanes() == 1 ? binary(n->op, a->value, b->value) : Expr();
}

bool is_order(BinaryOp op) {
  return op == BinaryOp::lt || op == BinaryOp::le || op == BinaryOp::gt || op == BinaryOp::ge;
}

bool is_integer(const Expr& e) { return is_int(e.dtype()) || e.dtype() == DType::boolean; }

}  // namespace

bool Ranges::from_memory(const Expr& e) const {
  return any_of(e, [&](const Expr& x) {
    const Var* v = x.as<Var>();
    const Entry* entry = v ? find(v->id) : nullptr;
    return x.as<Load>() || (entry && entry->memory);
  });
}

// A constant of the other sign only helps.
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
  Linear l = expand(e, keep);
  return e.dtype() != DType::i64 || fits(l) ? l : single_term(e);
}

Linear Ranges::quick_form(const Expr& e) const {
  Linear l = expand(e);
  return e.dtype() != DType::i64 || (l.exact && (l.is_term() || fits_i64(interval(l)))) ? l : single_term(e);
}

void Ranges::assume(const Expr& condition) { assume(condition, true); }

void Ranges::assume(const Expr& condition, bool truth) {
  if (const Broadcast* b = condition.as<Broadcast>()) return assume(b->value, truth);
  if (const Const* c = condition.as<Const>()) return void(never_ |= (c->bits != 0) != truth);
  if (const Expr one = of_one_lane(condition)) return assume(one, truth);
  if (const Unary* u = condition.as<Unary>(); u && u->op == UnaryOp::bit_not) return assume(u->a, !truth);
  if (const Intrinsic* i = condition.as<Intrinsic>(); i && i->op == IntrinsicOp::all && truth)
    return assume(i->args[0], true);
  if (const Intrinsic* i = condition.as<Intrinsic>(); i && i->op == IntrinsicOp::any && !truth)
    return assume(i->args[0], false);
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
  conditions_.emplace_back(condition, truth);
}

void Ranges::assume_comparison(const Binary& n, bool truth) {
  BinaryOp op = n.op;
  if (!truth) {
    static constexpr BinaryOp negated[] = {BinaryOp::ne, BinaryOp::eq, BinaryOp::ge,
                                           BinaryOp::gt, BinaryOp::le, BinaryOp::lt};
    op = negated[static_cast<int>(op) - static_cast<int>(BinaryOp::eq)];
  }
  const Linear a = form(n.a), b = form(n.b);
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
  if (!l.exact) return;
  if (l.terms.empty()) return void(never_ |= l.constant < 0);
  for (const Linear& q : assumed_)
    if (same(q, l)) return;
  tighten(l);
  if (l.terms.size() > 1) assumed_.push_back(l);  // of one term, its interval says all
  add_axioms(l, assumed_, 3);
}

// l >= 0 bounds each of its terms by the others' ranges.
void Ranges::tighten(const Linear& l) {
  for (const auto& [term, coefficient] : l.terms) {
    if (coefficient == INT64_MIN) continue;
    Linear rest = l;
    rest.add(term, -coefficient);
    const Interval others = interval(rest);
    if (!rest.exact || others.empty()) continue;
    const Interval now = term_interval(term);
    Interval bound = now;
    if (coefficient > 0)  // term >= -others / coefficient, rounded up
      bound.low = -floor_divide(others.high, coefficient);
    else  // term <= others / -coefficient, rounded down
      bound.high = floor_divide(others.high, -Wide{coefficient});
    bound = intersect(now, bound);
    never_ |= bound.empty();
    if (bound.low == now.low && bound.high == now.high) continue;
    if (const Var* v = term.as<Var>()) {
      const Entry* old = find(v->id);
      Entry entry = old ? *old : Entry{.id = v->id};
      entry.range = bound;
      push(std::move(entry));
    } else {
      bounds_.emplace_back(term, bound);
    }
    memo_.known.clear();
  }
}

const Load* Ranges::input_load(const Expr& e) const {
  const Load* l = load_of(e);
  const bool same =
      l && l->buffer->role == Role::in && !l->guard && std::all_of(l->index.begin(), l->index.end(), is_stable);
  return same && e.lanes() == 1 ? l : nullptr;
}

bool Ranges::in_order(const Expr& earlier, const Expr& later) const {
  const Load *a = input_load(earlier), *b = input_load(later);
  if (!a || !b || !a->buffer.same_as(b->buffer) || !a->buffer->facts.nondecreasing) return false;
  const size_t last = a->index.size() - 1;
  for (size_t d = 0; d < last; ++d)
    if (!equal(a->index[d], b->index[d])) return false;
  const Linear step = minus(quick_form(b->index[last]), quick_form(a->index[last]));
  return step.exact && step.terms.empty() && step.constant >= 0;
}

// What the meaning of l's terms adds: floor_div by a constant, floor_mod, min, max, and facts of loads.
void Ranges::add_axioms(const Linear& l, std::vector<Linear>& to, int depth) const {
  if (depth == 0) return;
  auto known = [&](const Linear& q) {
    auto is_q = [&](const Linear& other) { return same(other, q); };
    return std::any_of(to.begin(), to.end(), is_q) ||
           (&to != &assumed_ && std::any_of(assumed_.begin(), assumed_.end(), is_q));
  };
  auto add = [&](Linear q) {
    if (!q.exact || q.terms.empty() || known(q)) return;
    to.push_back(q);
    add_axioms(q, to, depth - 1);
  };
  // Elements of a nondecreasing input, the later one less the earlier one.
  for (const auto& [later, p] : l.terms)
    for (const auto& [earlier, q] : l.terms)
      if (p > 0 && q < 0 && in_order(earlier, later)) add(minus(single_term(later), single_term(earlier)));
  for (const auto& [term, coefficient] : l.terms) {
    if (const Load* load = term.as<Load>()) {
      const Facts& facts = load->buffer->facts;
      if (load->guard) continue;
      Linear value;
      value.add(term, 1);
      if (facts.min && !as_int(facts.min)) add(minus(value, quick_form(facts.min)));
      if (facts.max && !as_int(facts.max)) add(minus(quick_form(facts.max), value));
      continue;
    }
    const Binary* b = term.as<Binary>();
    if (!b || b->a.dtype() != DType::i64) continue;
    Linear value;
    value.add(term, 1);
    switch (b->op) {
      case BinaryOp::floor_div:
        if (std::optional<int64_t> c = as_int(b->b); c && *c > 0) {
          const Linear rest = minus(quick_form(b->a), scaled(value, *c));
          add(rest);
          add(scaled(rest, -1, *c - 1));
        }
        break;
      case BinaryOp::floor_mod:
        if (!as_int(b->b)) {
          if (interval(b->b).low > 0) add(scaled(minus(quick_form(b->b), value), 1, -1));
        }
        break;
      case BinaryOp::min:
        add(minus(quick_form(b->a), value));
        add(minus(quick_form(b->b), value));
        break;
      case BinaryOp::max:
        add(minus(value, quick_form(b->a)));
        add(minus(value, quick_form(b->b)));
        break;
      default:
        break;
    }
  }
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
    const std::optional<int64_t> c = as_int(mod->b);
    int64_t scaled_k;
    if (!c || *c < 1 || __builtin_mul_overflow(k, *c, &scaled_k) || scaled_k == INT64_MIN) continue;
    for (const auto& [div_term, coefficient] : l.terms) {
      const Binary* div = div_term.as<Binary>();
      if (!div || div->op != BinaryOp::floor_div || !is_const(div->b, *c) || !equal(div->a, mod->a) ||
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
  // The term that can be furthest below 0 must go where it is so far that no other makes up for it; without such a
  // term, any may.
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
  // By cases.
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
  if (interval(a).empty() || interval(b).empty()) return true;  // it has no value
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
