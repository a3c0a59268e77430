#include "ir/analysis/linear.h"

#include <algorithm>

#include "ir/rewrite.h"

namespace gradloom::ir {
namespace {

int64_t wrap_add(int64_t a, int64_t b, bool& exact) {
  int64_t result;
  exact &= !__builtin_add_overflow(a, b, &result);
  return result;
}

int64_t wrap_mul(int64_t a, int64_t b, bool& exact) {
  int64_t result;
  exact &= !__builtin_mul_overflow(a, b, &result);
  return result;
}

bool widens_to_i64(DType from) { return from != DType::u64 && !is_float(from); }

bool same_term(const Expr& a, const Expr& b) {
  const Var *x = a.as<Var>(), *y = b.as<Var>();
  if (x || y) return x && y && x->id == y->id;
  return equal(a, b);
}

}  // namespace

void Linear::add(const Expr& term, int64_t coefficient) {
  if (coefficient == 0) return;
  for (auto it = terms.begin(); it != terms.end(); ++it) {
    if (!same_term(it->first, term)) continue;
    it->second = wrap_add(it->second, coefficient, exact);
    if (it->second == 0) terms.erase(it);
    return;
  }
  terms.emplace_back(term, coefficient);
}

void Linear::add(const Linear& other, int64_t factor) {
  exact &= other.exact;
  lanes = std::max(lanes, other.lanes);
  constant = wrap_add(constant, wrap_mul(other.constant, factor, exact), exact);
  for (const auto& [term, coefficient] : other.terms) add(term, wrap_mul(coefficient, factor, exact));
}

int64_t Linear::coefficient(const Expr& term) const {
  for (const auto& [t, c] : terms)
    if (same_term(t, term)) return c;
  return 0;
}

void Linearizer::add(const Expr& e, int64_t factor) {
  out.lanes = std::max(out.lanes, e.lanes());
  const DType dtype = e.dtype();
  if (const Const* c = e.as<Const>(); c && !is_float(dtype) && !(dtype == DType::u64 && c->bits >> 63)) {
    const int64_t value = dtype == DType::boolean ? static_cast<int64_t>(c->bits) : *as_int(e);
    out.constant = wrap_add(out.constant, wrap_mul(value, factor, out.exact), out.exact);
    return;
  }
  if (const Broadcast* b = e.as<Broadcast>()) return add(b->value, factor);
  if (const Var* v = e.as<Var>(); v && scope)
    if (const Ranges::Entry* entry = scope->find(v->id)) {
      if (entry->range.single() && fits_i64(entry->range) && v->id != keep)
        return add(Expr(static_cast<int64_t>(entry->range.low)), factor);
      if (entry->form && dtype == DType::i64) return add(*entry->form, factor);
    }
  if (dtype != DType::i64) return out.add(e, factor);
  if (const Cast* c = e.as<Cast>(); c && widens_to_i64(c->value.dtype())) return add(c->value, factor);
  if (const Ramp* r = e.as<Ramp>())
    if (std::optional<int64_t> stride = as_int(r->stride)) {
      add(r->base, factor);
      const bool plain = *stride == 1 && is_const(r->base, 0);
      return out.add(plain ? e : ramp(Expr(0), Expr(1), r->lanes), wrap_mul(*stride, factor, out.exact));
    }
  if (const Unary* u = e.as<Unary>(); u && u->op == UnaryOp::neg) return add(u->a, wrap_mul(factor, -1, out.exact));
  if (const Binary* b = e.as<Binary>()) {
    if (b->op == BinaryOp::add) return add(b->a, factor), add(b->b, factor);
    if (b->op == BinaryOp::sub) return add(b->a, factor), add(b->b, wrap_mul(factor, -1, out.exact));
    if (b->op == BinaryOp::mul) {
      Linearizer left{scope, {}, keep}, right{scope, {}, keep};
      left.add(b->a, 1), right.add(b->b, 1);
      if (left.out.terms.empty()) std::swap(left, right);
      if (right.out.terms.empty()) return out.add(left.out, wrap_mul(factor, right.out.constant, out.exact));
    }
    if (b->op == BinaryOp::shl)
      if (std::optional<int64_t> count = as_int(b->b); count && *count >= 0 && *count < 63)
        return add(b->a, wrap_mul(factor, int64_t{1} << *count, out.exact));
  }
  out.add(e, factor);
}

void Linearizer::add(const Linear& form, int64_t factor) {
  out.exact &= form.exact;
  out.lanes = std::max(out.lanes, form.lanes);
  out.constant = wrap_add(out.constant, wrap_mul(form.constant, factor, out.exact), out.exact);
  for (const auto& [term, coefficient] : form.terms) {
    const int64_t scaled = wrap_mul(coefficient, factor, out.exact);
    term.as<Var>() ? add(term, scaled) : out.add(term, scaled);
  }
}

Linear linear(const Expr& e) {
  Linearizer l;
  l.add(e, 1);
  return std::move(l.out);
}

Expr to_expr(const Linear& l) {
  Expr lane;
  int64_t lane_stride = 0;
  Expr sum;
  auto append = [&](Expr e, bool negative) {
    if (!sum)
      sum = negative ? unary(UnaryOp::neg, e) : e;
    else
      sum = negative ? sum - e : sum + e;
  };
  // Positive terms first: a - b rather than -b + a.
  bool vector = false;
  for (const bool negative : {false, true})
    for (const auto& [term, coefficient] : l.terms) {
      if ((coefficient < 0) != negative) continue;
      if (const Ramp* r = term.as<Ramp>();
          r && !lane && term.dtype() == DType::i64 && is_const(r->base, 0) && is_const(r->stride, 1)) {
        lane = term, lane_stride = coefficient;
        continue;
      }
      vector |= term.lanes() > 1;
      Expr e = cast(DType::i64, term);
      if (coefficient == 1)
        append(e, false);
      else if (coefficient == -1)
        append(e, true);
      else if (negative && sum && coefficient != INT64_MIN)
        append(e * broadcast(Expr(-coefficient), e.lanes()), true);
      else
        append(e * broadcast(Expr(coefficient), e.lanes()), false);
    }
  if (!sum)
    sum = Expr(l.constant);
  else if (l.constant < 0 && l.constant != INT64_MIN)
    sum = sum - Expr(-l.constant);
  else if (l.constant != 0)
    sum = sum + Expr(l.constant);
  if (lane) sum = vector ? sum + lane * Expr(lane_stride) : ramp(sum, Expr(lane_stride), lane.lanes());
  return broadcast(sum, l.lanes);
}

Linear scaled(const Linear& l, int64_t factor, int64_t constant) {
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

Expr of_one_lane(const Expr& condition) {
  const Binary* n = condition.as<Binary>();
  if (!n || !is_comparison(n->op)) return {};
  const Broadcast *a = n->a.as<Broadcast>(), *b = n->b.as<Broadcast>();
  return a && b && a->value.lanes() == 1 && b->value.lanes() == 1 ? binary(n->op, a->value, b->value) : Expr();
}

bool is_integer(const Expr& e) { return is_int(e.dtype()) || e.dtype() == DType::boolean; }

bool is_stable(const Expr& e) {
  return !any_of(e, [](const Expr& x) { return x.as<Load>() && x.as<Load>()->buffer->role != Role::in; });
}

}  // namespace gradloom::ir
