// Facts from conditions: those assumed inside a guard, and those implied by the semantics of terms.
#include <algorithm>

#include "ir/analysis/linear.h"
#include "ir/analysis/ranges.h"

namespace gradloom::ir {

// What must hold of "a or b" once the variable's value has refuted one side; absent: it has not.
static Expr left_by(const Expr& condition, const Var& v, bool value) {
  const Binary* either = condition.as<Binary>();
  if (!either || either->op != BinaryOp::bit_or || either->a.dtype() != DType::boolean) return {};
  const auto refuted = [&](const Expr& side) {
    const Unary* u = side.as<Unary>();
    const Var* x = (u && u->op == UnaryOp::bit_not ? u->a : side).as<Var>();
    return x && x->id == v.id && value == (u != nullptr);
  };
  return refuted(either->a) ? either->b : refuted(either->b) ? either->a : Expr();
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
  if (const Intrinsic* i = condition.as<Intrinsic>(); i && i->op == IntrinsicOp::any) assume_in_some_lane(i->args[0]);
  if (const Var* v = condition.as<Var>()) {
    const size_t known = conditions_.size();
    conditions_.emplace_back(condition, truth);
    const Entry* entry = find(v->id);
    if (entry && entry->value && is_stable(entry->value)) assume(Expr(entry->value), truth);
    for (size_t i = 0; i < known; ++i) {
      const auto [other, holds] = conditions_[i];
      if (const Expr rest = left_by(other, *v, truth); holds && rest) assume(rest, true);
    }
    return;
  }
  if (const Binary* b = condition.as<Binary>()) {
    if (b->a.dtype() == DType::boolean && b->op == (truth ? BinaryOp::bit_and : BinaryOp::bit_or)) {
      assume(b->a, truth);
      return assume(b->b, truth);
    }
    if (is_comparison(b->op) && is_integer(b->a)) return assume_comparison(*b, truth);
    if (b->a.dtype() == DType::boolean && b->op == BinaryOp::bit_or)
      for (const auto& [side, rest] : {std::pair(b->a, b->b), std::pair(b->b, b->a)})
        if (proves(side) == false) return assume(rest, true);
  }
  conditions_.emplace_back(condition, truth);
}

// What a condition that holds in an unknown lane says of values that are the same in all lanes.
void Ranges::assume_in_some_lane(const Expr& condition) {
  if (const Var* v = condition.as<Var>()) {
    const Entry* entry = find(v->id);
    if (entry && entry->value && is_stable(entry->value)) assume_in_some_lane(Expr(entry->value));
    return;
  }
  const Binary* b = condition.as<Binary>();
  if (!b) return;
  if (b->a.dtype() == DType::boolean && b->op == BinaryOp::bit_and) {
    assume_in_some_lane(b->a);
    return assume_in_some_lane(b->b);
  }
  if (!is_order(b->op) || !is_integer(b->a)) return;
  const Linear difference = as_inequality(b->op, form(b->a), form(b->b));
  Linear all = difference;  // at least the difference, in every lane
  for (const auto& [term, coefficient] : difference.terms) {
    if (term.lanes() == 1) continue;
    const Range values = of(term);
    const std::optional<int64_t>& most = coefficient > 0 ? values.max : values.min;
    Wide constant;
    if (!most || __builtin_mul_overflow(Wide{coefficient}, Wide{*most}, &constant)) return;
    constant += all.constant;
    if (constant > INT64_MAX || constant < INT64_MIN) return;
    all.add(term, -coefficient);
    all.constant = static_cast<int64_t>(constant);
  }
  all.lanes = 1;
  add_inequality(std::move(all));
}

void Ranges::assume_comparison(const Binary& n, bool truth) {
  BinaryOp op = n.op;
  if (!truth) {
    static constexpr BinaryOp negated[] = {BinaryOp::ne, BinaryOp::eq, BinaryOp::ge,
                                           BinaryOp::gt, BinaryOp::le, BinaryOp::lt};
    op = negated[static_cast<int>(op) - static_cast<int>(BinaryOp::eq)];
  }
  const Linear a = form(n.a), b = form(n.b);
  const Interval of_a = interval(a), of_b = interval(b);
  never_ |= of_a.empty() || of_b.empty() || compare_values(op, of_a, of_b) == false;
  if (is_order(op)) return add_inequality(as_inequality(op, a, b));
  const Linear d = minus(a, b);
  if (op == BinaryOp::eq) {
    add_inequality(d);
    return add_inequality(scaled(d, -1));
  }
  // Not equal: only useful at an end of a range.
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
  if (l.terms.size() > 1) assumed_.push_back(l);  // for a single term its interval already says everything
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

// Facts implied by the semantics of l's terms: floor_div by a constant, floor_mod, min, max, and facts of loads.
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

}  // namespace gradloom::ir
