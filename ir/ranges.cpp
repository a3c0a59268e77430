#include "ir/ranges.h"

#include <algorithm>
#include <bit>

#include "ir/linear.h"
#include "ir/rewrite.h"

namespace gradloom::ir {
namespace {

using Wide = __int128;

std::optional<int64_t> narrow(Wide v) {
  if (v < INT64_MIN || v > INT64_MAX) return std::nullopt;
  return static_cast<int64_t>(v);
}

Range type_range(DType dtype) {
  switch (dtype) {
    case DType::boolean: return {0, 1};
    case DType::i8: return {INT8_MIN, INT8_MAX};
    case DType::u8: return {0, UINT8_MAX};
    case DType::i16: return {INT16_MIN, INT16_MAX};
    case DType::u16: return {0, UINT16_MAX};
    case DType::i32: return {INT32_MIN, INT32_MAX};
    case DType::u32: return {0, UINT32_MAX};
    case DType::u64: return {0, {}};
    case DType::i64:
    case DType::f16:
    case DType::bf16:
    case DType::f32:
    case DType::f64: return {};
  }
  return {};
}

// A result that does not fit its type wraps: then all is possible.
Range fit(Range r, DType dtype) {
  const Range all = type_range(dtype);
  if (dtype == DType::i64) return r;
  if (!r.min || !r.max || (all.min && *r.min < *all.min) || (all.max && *r.max > *all.max)) return all;
  return r;
}

Range intersect(Range a, const Range& b) {
  if (b.min && (!a.min || *b.min > *a.min)) a.min = b.min;
  if (b.max && (!a.max || *b.max < *a.max)) a.max = b.max;
  return a;
}

Range unite(const Range& a, const Range& b) {
  Range r;
  if (a.min && b.min) r.min = std::min(*a.min, *b.min);
  if (a.max && b.max) r.max = std::max(*a.max, *b.max);
  return r;
}

Range sum(const Range& a, const Range& b, int sign) {
  Range r;
  const auto& b_min = sign > 0 ? b.min : b.max;
  const auto& b_max = sign > 0 ? b.max : b.min;
  if (a.min && b_min) r.min = narrow(Wide{*a.min} + Wide{sign} * *b_min);
  if (a.max && b_max) r.max = narrow(Wide{*a.max} + Wide{sign} * *b_max);
  return r;
}

Range product(const Range& a, const Range& b) {
  if (a.min && a.max && b.min && b.max) {
    const Wide all[] = {Wide{*a.min} * *b.min, Wide{*a.min} * *b.max, Wide{*a.max} * *b.min, Wide{*a.max} * *b.max};
    return {narrow(*std::min_element(all, all + 4)), narrow(*std::max_element(all, all + 4))};
  }
  if (a.min && *a.min >= 0 && b.min && *b.min >= 0) return {narrow(Wide{*a.min} * *b.min), {}};
  return {};
}

int64_t floor_divide(int64_t a, int64_t b) { return a / b - (a % b != 0 && (a < 0) != (b < 0)); }

Range quotient(const Range& a, const Range& b) {
  if (!b.min || *b.min < 1) return {};
  Range r;
  if (a.min) r.min = *a.min >= 0 ? (b.max ? *a.min / *b.max : 0) : floor_divide(*a.min, *b.min);
  if (a.max) r.max = *a.max >= 0 ? *a.max / *b.min : (b.max ? floor_divide(*a.max, *b.max) : -1);
  return r;
}

Range remainder(const Range& a, const Range& b) {
  if (!b.min || *b.min < 1) return {};
  Range r{0, {}};
  if (b.max) r.max = *b.max - 1;
  if (a.min && *a.min >= 0 && a.max) {
    if (*a.max < *b.min) return a;
    if (!r.max || *a.max < *r.max) r.max = a.max;
  }
  if (a.min && a.max && b.single() && floor_divide(*a.min, *b.min) == floor_divide(*a.max, *b.min)) {
    const int64_t base = floor_divide(*a.min, *b.min) * *b.min;
    return {*a.min - base, *a.max - base};
  }
  return r;
}

}  // namespace

Ranges::Ranges(const Kernel& kernel) {
  for (const Scalar& s : kernel.scalars) {
    Range r = type_range(s.var.type.dtype);
    if (s.min) r = intersect(r, {of(s.min).min, {}});
    if (s.max) r = intersect(r, {{}, of(s.max).max});
    set(s.var.id, r);
    if (s.var.type.dtype != DType::i64) continue;
    for (const Expr& bound : {s.min, s.max}) {
      if (!bound || as_int(bound)) continue;
      Linear l = expand(var(s.var));
      l.add(expand(bound), -1);
      Linear flipped;
      flipped.add(l, -1);
      add_inequality(bound.same_as(s.min) ? l : flipped);
    }
  }
}

void Ranges::set(int64_t var_id, Range range) {
  const Entry* old = find(var_id);
  Entry entry = old ? *old : Entry{var_id, {}, {}};
  entry.range = range;
  vars_.push_back(std::move(entry));
}

void Ranges::restore(const Mark& mark) {
  vars_.resize(mark.vars, Entry{});
  assumed_.resize(mark.assumed);
  conditions_.resize(mark.conditions);
}

const Ranges::Entry* Ranges::find(int64_t id) const {
  for (size_t i = vars_.size(); i-- > 0;)
    if (vars_[i].id == id) return &vars_[i];
  return nullptr;
}

const Expr* Ranges::let_value(int64_t var_id) const {
  const Entry* entry = find(var_id);
  return entry && entry->value ? &entry->value : nullptr;
}

void Ranges::enter(const For& loop) {
  const Range begin = of(loop.begin), extent = of(loop.extent);
  Range r{begin.min, {}};
  if (begin.max && extent.max) r.max = narrow(Wide{*begin.max} + *extent.max - 1);
  // Bounds are read on entry: what they load must not change in the body.
  bool stable = true;
  for (const Expr& bound : {loop.begin, loop.extent})
    walk(bound, [&](const Expr& e) {
      const Load* l = e.as<Load>();
      if (!l || l->buffer->role == Role::in) return;
      walk(loop.body, [&](const Stmt& s) {
        const Store* st = s.as<Store>();
        const Accumulate* ac = s.as<Accumulate>();
        stable &= !(st && st->buffer.same_as(l->buffer)) && !(ac && ac->buffer.same_as(l->buffer));
      });
    });
  Linear first, last;
  if (stable) {
    last = expand(loop.begin);
    first.add(last, -1);
    last.add(expand(loop.extent));
    const Range whole = of(last);
    if (whole.max && *whole.max > INT64_MIN) r = intersect(r, {{}, *whole.max - 1});
  }
  vars_.push_back({loop.var.id, r, {}});
  if (!stable) return;
  const Expr v = var(loop.var);
  if (!first.terms.empty()) {
    first.add(v, 1);
    add_inequality(first);
  }
  if (!last.terms.empty()) {
    last.add(v, -1);
    last.constant -= 1;
    add_inequality(last);
  }
}

// Of e with all lets put in: lets that use others twice double it each time.
int Ranges::expanded_nodes(const Expr& e) const {
  int nodes = 0;
  walk(e, [&](const Expr& x) {
    const Var* v = x.as<Var>();
    const Entry* entry = v ? find(v->id) : nullptr;
    nodes = std::min(nodes + (entry ? entry->nodes : 1), max_expr_nodes);
  });
  return nodes;
}

void Ranges::enter(const Let& let) {
  constexpr int most_expanded_nodes = 4096;
  const bool integer = !is_float(let.value.dtype());
  const int nodes = expanded_nodes(let.value);
  const bool small = nodes <= most_expanded_nodes;
  Entry entry{let.var.id, integer ? of(let.value) : Range{}, small ? let.value : Expr()};
  entry.memory = from_memory(let.value);
  // A value read from memory stays a variable of its own, that guards can tighten.
  entry.expandable = small && (!entry.memory || (let.value.as<Binary>() && is_stable(let.value)));
  // What comes from memory is looked at twice: for its range, and whether to trust it.
  if (small) entry.nodes = entry.memory && entry.expandable ? 2 * nodes : nodes;
  vars_.push_back(entry);
  Expr value = let.value;
  while (const Cast* c = value.as<Cast>()) value = c->value;
  const Load* l = value.as<Load>();
  if (!l || l->guard || !is_int(let.value.dtype())) return;
  // Symbolic facts go to the variable; constant ones are in its range.
  const Facts& facts = l->buffer->facts;
  for (const bool lower : {true, false}) {
    const Expr& bound = lower ? facts.min : facts.max;
    if (!bound || as_int(bound)) continue;
    if (let.value.dtype() != value.dtype() && let.value.dtype() != DType::i64) continue;
    Linear inequality;
    inequality.add(var(let.var), lower ? 1 : -1);
    inequality.add(expand(bound), lower ? -1 : 1);
    add_inequality(inequality);
  }
}

Range Ranges::of(const Linear& l) const {
  if (!l.exact) return {};
  Wide low = l.constant, high = l.constant;
  bool has_low = true, has_high = true;
  for (const auto& [term, coefficient] : l.terms) {
    const Range r = raw_range(term);
    const auto& small = coefficient > 0 ? r.min : r.max;
    const auto& large = coefficient > 0 ? r.max : r.min;
    has_low &= small.has_value(), has_high &= large.has_value();
    if (small) low += Wide{coefficient} * *small;
    if (large) high += Wide{coefficient} * *large;
  }
  Range r;
  if (has_low) r.min = narrow(low);
  if (has_high) r.max = narrow(high);
  return r;
}

Linear Ranges::expand(const Expr& e, int64_t keep) const {
  Linearizer l{this, {}, keep};
  l.add(e, 1);
  return std::move(l.out);
}

Range Ranges::of(const Expr& e) const {
  if (e.dtype() == DType::i64 && !e.as<Const>()) {
    const Linear l = expand(e);
    if (l.terms.size() == 1 && l.constant == 0 && l.terms[0].second == 1 && l.terms[0].first.same_as(e)) return raw_range(e);
    const Range r = of(l);
    if ((r.min && r.max) || trusted(l)) return r;
    return {};
  }
  return raw_range(e);
}

// Of a term that `expand` does not take apart.
Range Ranges::raw_range(const Expr& e) const {
  const DType dtype = e.dtype();
  if (is_float(dtype)) return {};
  if (const Const* c = e.as<Const>()) {
    if (dtype == DType::boolean) return {static_cast<int64_t>(c->bits), static_cast<int64_t>(c->bits)};
    if (dtype == DType::u64 && c->bits >> 63) return {INT64_MAX, {}};
    return {as_int(e), as_int(e)};
  }
  if (const Var* v = e.as<Var>()) {
    const Entry* entry = find(v->id);
    return entry ? intersect(entry->range, type_range(dtype)) : type_range(dtype);
  }
  if (const Load* l = e.as<Load>()) {
    Range r = type_range(dtype);
    const Facts& facts = l->buffer->facts;
    if (facts.min) r = intersect(r, {of(facts.min).min, {}});
    if (facts.max) r = intersect(r, {{}, of(facts.max).max});
    return l->guard ? unite(r, of(l->otherwise)) : r;
  }
  if (const Binary* b = e.as<Binary>()) {
    if (is_comparison(b->op)) return {0, 1};
    const Range r = fit(binary_range(*b), dtype);
    const bool may_wrap = b->op == BinaryOp::mul || b->op == BinaryOp::shl;
    return may_wrap && !(r.min && r.max) && from_memory(e) ? type_range(dtype) : r;
  }
  if (const Unary* u = e.as<Unary>()) {
    const Range a = of(u->a);
    if (u->op == UnaryOp::neg) return fit(sum({0, 0}, a, -1), dtype);
    if (u->op == UnaryOp::abs) {
      if (a.min && *a.min >= 0) return a;
      if (!a.min || *a.min == INT64_MIN || !a.max) return type_range(dtype);
      return fit({*a.max < 0 ? -*a.max : 0, std::max(-*a.min, *a.max)}, dtype);
    }
    return type_range(dtype);
  }
  if (const Select* s = e.as<Select>()) return unite(of(s->a), of(s->b));
  if (const Cast* c = e.as<Cast>()) {
    if (is_float(c->value.dtype())) return type_range(dtype);
    const Range r = of(c->value);
    if (c->value.dtype() == DType::u64 && !r.max) return type_range(dtype);
    return dtype == DType::i64 ? r : dtype == DType::u64 ? (r.min && *r.min >= 0 ? r : type_range(dtype)) : fit(r, dtype);
  }
  if (const Broadcast* b = e.as<Broadcast>()) return of(b->value);
  if (const Ramp* r = e.as<Ramp>()) return fit(sum(of(r->base), product(of(r->stride), {0, r->lanes - 1}), 1), dtype);
  if (const Shuffle* s = e.as<Shuffle>()) {
    if (const Ramp* r = s->a.as<Ramp>(); r && !s->b && s->lanes.size() == 1)
      return fit(sum(of(r->base), product(of(r->stride), {s->lanes[0], s->lanes[0]}), 1), dtype);
    return s->b ? unite(of(s->a), of(s->b)) : of(s->a);
  }
  return type_range(dtype);
}

Range Ranges::binary_range(const Binary& n) const {
  const Range a = of(n.a), b = of(n.b);
  const bool nonnegative = a.min && *a.min >= 0 && b.min && *b.min >= 0;
  switch (n.op) {
    case BinaryOp::add: return sum(a, b, 1);
    case BinaryOp::sub: return sum(a, b, -1);
    case BinaryOp::mul: return product(a, b);
    case BinaryOp::floor_div: return quotient(a, b);
    case BinaryOp::floor_mod: return remainder(a, b);
    case BinaryOp::min: {
      Range r = unite(a, b);
      r.max = a.max && b.max ? std::min(*a.max, *b.max) : a.max ? a.max : b.max;
      return r;
    }
    case BinaryOp::max: {
      Range r = unite(a, b);
      r.min = a.min && b.min ? std::max(*a.min, *b.min) : a.min ? a.min : b.min;
      return r;
    }
    case BinaryOp::bit_and:
      if (nonnegative) return {0, a.max && b.max ? std::min(*a.max, *b.max) : a.max ? a.max : b.max};
      if (a.min && *a.min >= 0) return {0, a.max};
      if (b.min && *b.min >= 0) return {0, b.max};
      return {};
    case BinaryOp::bit_or:
    case BinaryOp::bit_xor: {
      if (!nonnegative || !a.max || !b.max) return {};
      const int bits = std::bit_width(static_cast<uint64_t>(std::max(*a.max, *b.max)));
      return {0, bits >= 63 ? INT64_MAX : (int64_t{1} << bits) - 1};
    }
    case BinaryOp::shl:
      if (b.single() && *b.min >= 0 && *b.min < 62) return product(a, {int64_t{1} << *b.min, int64_t{1} << *b.min});
      return {};
    case BinaryOp::shr:
      if (b.single() && *b.min >= 0 && *b.min < 62) return quotient(a, {int64_t{1} << *b.min, int64_t{1} << *b.min});
      return {};
    case BinaryOp::div:
    case BinaryOp::eq:
    case BinaryOp::ne:
    case BinaryOp::lt:
    case BinaryOp::le:
    case BinaryOp::gt:
    case BinaryOp::ge: return {};
  }
  return {};
}

}  // namespace gradloom::ir
