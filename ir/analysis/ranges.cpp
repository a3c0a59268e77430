#include "ir/analysis/ranges.h"

#include <algorithm>
#include <unordered_set>

#include "ir/analysis/linear.h"
#include "ir/rewrite.h"

namespace gradloom::ir {
namespace {

Range to_range(const Interval& v, DType dtype) {
  if (v.empty()) return {1, 0};
  const Interval i64 = limits(DType::i64);
  Range r;
  if (dtype != DType::i64 || v.low != i64.low || v.single())
    if (v.low >= i64.low) r.min = static_cast<int64_t>(std::min(v.low, i64.high));
  if (dtype != DType::i64 || v.high != i64.high || v.single())
    if (v.high <= i64.high) r.max = static_cast<int64_t>(std::max(v.high, i64.low));
  return r;
}

// Whether e loads a buffer that `body` writes.
bool changes_in(const Expr& e, const Stmt& body) {
  return any_of(e, [&](const Expr& x) {
    const Load* l = x.as<Load>();
    return l && l->buffer->role != Role::in && writes(body, l->buffer);
  });
}

Interval lanes_of(const Interval& base, const Interval& stride, int first, int last) {
  return add(base, multiply(stride, {first, last}));
}

}  // namespace

Ranges::Ranges(const Kernel& kernel) {
  for (const Scalar& s : kernel.scalars) {
    Interval v = limits(s.var.type.dtype);
    if (s.min) v = intersect(v, {interval(s.min).low, v.high});
    if (s.max) v = intersect(v, {v.low, interval(s.max).high});
    push({.id = s.var.id, .range = v});
    if (s.var.type.dtype != DType::i64) continue;
    for (const Expr& bound : {s.min, s.max})
      if (bound && !as_int(bound)) assume(bound.same_as(s.min) ? var(s.var) >= bound : var(s.var) <= bound);
  }
  std::unordered_set<int64_t> known;  // scalars that were a dim before
  for (const Buffer& b : kernel.buffers) {
    std::vector<int64_t> scalars;
    for (const Expr& dim : b ? b->dims : std::vector<Expr>{}) {
      const Var* v = dim.as<Var>();
      if (v) scalars.push_back(v->id);
      if (!as_int(dim) && !(v && !known.insert(v->id).second)) assume((dim >= Expr(0)) & (dim <= Expr(max_elements)));
    }
    if (scalars.size() > 1 && std::find(dims_.begin(), dims_.end(), scalars) == dims_.end())
      dims_.push_back(std::move(scalars));
  }
}

void Ranges::push(Entry entry) {
  // Memoised results do not mention a new variable and stay valid.
  if (find(entry.id)) memo_.known.clear();
  vars_.push_back(std::move(entry));
}

void Ranges::set(int64_t var_id, Range range) {
  const Entry* old = find(var_id);
  Entry entry = old ? *old : Entry{.id = var_id};
  const Interval all = limits(DType::i64);
  entry.range = {range.min.value_or(all.low), range.max.value_or(all.high)};
  push(std::move(entry));
}

void Ranges::restore(const Mark& mark) {
  never_ = mark.never;
  if (vars_.size() == mark.vars && assumed_.size() == mark.assumed && bounds_.size() == mark.bounds &&
      conditions_.size() == mark.conditions)
    return;
  memo_.known.clear();
  vars_.resize(mark.vars);
  assumed_.resize(mark.assumed);
  conditions_.resize(mark.conditions);
  bounds_.resize(mark.bounds);
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

const Load* Ranges::load_of(const Expr& e) const {
  if (const Load* l = e.as<Load>()) return l;
  if (const Cast* c = e.as<Cast>()) return keeps_value(c->value.dtype(), e.dtype()) ? load_of(c->value) : nullptr;
  const Var* v = e.as<Var>();
  const Expr* value = v ? let_value(v->id) : nullptr;
  return value ? load_of(*value) : nullptr;
}

// The body runs with begin, ..., begin + extent - 1, which wraps: facts about the variable hold only if that sum stays
// within i64.
void Ranges::enter(const For& loop) {
  Entry entry{.id = loop.var.id, .range = limits(DType::i64)};
  const Interval from = interval(loop.begin), trips = intersect(interval(loop.extent), {1, limits(DType::i64).high});
  const Interval runs_to = add(from, trips);
  if (from.single() && trips.single() && runs_to.high - 1 <= INT64_MAX && as_int(loop.begin) && as_int(loop.extent)) {
    entry.range = {from.low, runs_to.high - 1};
    return push(std::move(entry));
  }
  // Bounds are read on entry: memory they load from must not change in the body.
  const bool stable = !changes_in(loop.begin, loop.body) && !changes_in(loop.extent, loop.body);
  const Linear begin = form(loop.begin);
  // In the body the extent is at least 1, so a nonnegative difference has not wrapped.
  Linear extent = expand_wrapped(loop.extent);
  if (!fits(extent) && !(interval(extent).high <= Wide{UINT64_MAX} && nonnegative(extent))) extent = form(loop.extent);
  Linear last = begin;
  last.add(extent);
  last.add(Linear{.constant = -1});
  const bool ends = runs_to.high - 1 <= INT64_MAX || fits_above(last);  // never before begin
  if (trips.empty())
    entry.range = empty_interval, never_ = true;
  else if (ends)
    entry.range = intersect({nonnegative(begin) ? std::max(from.low, Wide{0}) : from.low, runs_to.high - 1},
                            {limits(DType::i64).low, interval(last).high});
  push(std::move(entry));
  if (!stable) return;
  if (!extent.terms.empty()) {
    Linear runs = extent;
    runs.add(Linear{.constant = -1});
    add_inequality(std::move(runs));
  }
  if (!ends) return;
  const Expr v = var(loop.var);
  if (!begin.terms.empty()) {
    Linear after;
    after.add(v, 1);
    after.add(begin, -1);
    add_inequality(std::move(after));
  }
  if (!last.terms.empty()) {
    last.add(v, -1);
    add_inequality(std::move(last));
  }
}

// The size of e with all lets substituted: each let that uses another one twice doubles it.
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
  const int nodes = expanded_nodes(let.value);
  const bool small = nodes <= most_expanded_nodes;
  Entry entry{.id = let.var.id, .range = interval(let.value), .value = small ? let.value : Expr()};
  never_ |= entry.range.empty();
  entry.memory = from_memory(let.value);
  // A value loaded from memory stays a variable, so that guards can tighten its range.
  entry.stable = !entry.memory || (let.value.as<Binary>() && is_stable(let.value));
  if (small) entry.nodes = nodes;
  if (entry.stable && let.value.dtype() == DType::i64) entry.form = std::make_shared<const Linear>(form(let.value));
  push(std::move(entry));
  const Load* l = load_of(let.value);
  if (!l || l->guard || !is_int(l->buffer->dtype)) return;
  // Symbolic facts go to the variable; constant ones are in its range.
  const Facts& facts = l->buffer->facts;
  for (const bool lower : {true, false}) {
    const Expr& bound = lower ? facts.min : facts.max;
    if (!bound || as_int(bound)) continue;
    Linear inequality;
    inequality.add(var(let.var), lower ? 1 : -1);
    inequality.add(form(bound), lower ? -1 : 1);
    add_inequality(inequality);
  }
}

// Of k * x + q * floor_div(x, c), where that never changes direction as x grows: from its values at the ends of x.
std::optional<Interval> Ranges::with_quotient(const Linear& l) const {
  for (const size_t i : {size_t{0}, size_t{1}}) {
    const auto& [x, k] = l.terms[1 - i];
    const auto& [quotient, q] = l.terms[i];
    const Binary* b = quotient.as<Binary>();
    const std::optional<int64_t> c = b && b->op == BinaryOp::floor_div ? as_int(b->b) : std::nullopt;
    if (!c || *c < 2 || !equal(b->a, x) || k == INT64_MIN || (k > 0 ? q >= 0 || q < -k : q <= 0 || q > -k)) continue;
    const Interval values = term_interval(x);
    if (values.empty() || !fits_i64(values)) return std::nullopt;
    const auto at = [&, k = Wide{k}, q = Wide{q}](Wide v) { return v * k + floor_divide(v, *c) * q + l.constant; };
    const Wide low = at(values.low), high = at(values.high);
    return Interval{std::min(low, high), std::max(low, high)};
  }
  return std::nullopt;
}

Interval Ranges::interval(const Linear& l) const {
  if (!l.exact) return everything;
  if (l.terms.size() == 2)
    if (const std::optional<Interval> values = with_quotient(l)) return *values;
  Interval sum{l.constant, l.constant};
  for (const auto& [term, coefficient] : l.terms)
    sum = add(sum, multiply(term_interval(term), {coefficient, coefficient}));
  return sum;
}

Range Ranges::of(const Linear& l) const {
  const Interval v = interval(l), i64 = limits(DType::i64);
  if (v.empty()) return {1, 0};
  Range r;
  if (v.low >= i64.low && v.low <= i64.high) r.min = static_cast<int64_t>(v.low);
  if (v.high >= i64.low && v.high <= i64.high) r.max = static_cast<int64_t>(v.high);
  return r;
}

bool Ranges::within(const Linear& l, int64_t min, int64_t max) const {
  Linear expanded;
  expanded.constant = l.constant, expanded.exact = l.exact;
  for (const auto& [term, coefficient] : l.terms) expanded.add(expand(term), coefficient);
  return Interval{min, max}.contains(interval(expanded));
}

Linear Ranges::expand(const Expr& e, int64_t keep) const {
  Linearizer l{this, {}, keep};
  l.add(e, 1);
  return std::move(l.out);
}

Linear Ranges::expand_wrapped(const Expr& e, int64_t keep) const {
  Linear l = expand(e, keep);
  l.exact = true;
  return l;
}

Interval Ranges::interval(const Expr& e) const {
  if (is_float(e.dtype())) return limits(DType::i64);
  if (e.dtype() != DType::i64 || e.as<Const>()) return term_interval(e);
  const Linear l = expand_wrapped(e);
  if (l.is_term()) return term_interval(l.terms[0].first);
  const Interval v = interval(l);
  return fits_i64(v) ? v : term_interval(e);  // it may wrap: use what the node and guards imply about its value
}

// What was assumed of a sum that might have wrapped is known of its expression, not of its terms.
Interval Ranges::interval_as_written(const Expr& e) const {
  Interval v = interval(e);
  for (const auto& [term, bound] : bounds_)
    if (equal(term, e)) v = intersect(v, bound);
  return v;
}

bool Ranges::nonzero(const Expr& e) const {
  const Interval v = interval_as_written(e);
  return v.low > 0 || v.high < 0;
}

bool Ranges::shift_count(const Expr& e) const {
  return Interval{0, 8 * size_of(e.dtype()) - 1}.contains(interval_as_written(e));
}

Range Ranges::of(const Expr& e) const { return is_float(e.dtype()) ? Range{} : to_range(interval(e), e.dtype()); }

Interval Ranges::term_interval(const Expr& e) const {
  if (e.as<Const>()) return node_interval(e);
  if (const Var* v = e.as<Var>()) {
    const Entry* entry = find(v->id);
    return entry ? intersect(entry->range, limits(e.dtype())) : limits(e.dtype());
  }
  if (const auto known = memo_.known.find(e.get()); known != memo_.known.end()) return known->second.second;
  Interval v = node_interval(e);
  for (const auto& [term, bound] : bounds_)
    if (equal(term, e)) v = intersect(v, bound);
  memo_.known.emplace(e.get(), std::pair(e, v));
  return v;
}

// e is at most `multiple` times the product of the dims, each counted as at least 1: a dim, a multiple or rounded-up
// fraction of one, products of such.
bool Ranges::count_of(const Expr& e, std::vector<int64_t>& dims, Wide& multiple) const {
  const auto times = [&](int64_t c) {  // so that the product fits i64
    multiple *= std::clamp<int64_t>(c, 1, 1 << 15);
    return c >= 0 && multiple < 1 << 15;
  };
  if (dims.size() > 16) return false;
  if (const std::optional<int64_t> c = as_int(e)) return times(*c);
  if (const Var* v = e.as<Var>()) {
    if (const Expr* value = let_value(v->id)) return count_of(*value, dims, multiple);
    return dims.push_back(v->id), true;
  }
  const Binary* b = e.as<Binary>();
  if (!b || e.dtype() != DType::i64) return false;
  const std::optional<int64_t> c = as_int(b->b);
  if (b->op == BinaryOp::mul) return count_of(b->a, dims, multiple) && count_of(b->b, dims, multiple);
  if (b->op == BinaryOp::max) return c && *c <= 1 && count_of(b->a, dims, multiple);
  if (b->op != BinaryOp::floor_div || !c || *c < 1 || *c > max_elements) return false;
  const Linear l = linear(b->a);
  if (!l.exact || l.terms.size() != 1 || l.terms[0].second < 1 || l.constant < 0 || l.constant >= *c) return false;
  return times(l.terms[0].second) && count_of(l.terms[0].first, dims, multiple);
}

Interval Ranges::product_of_dims(const Expr& e) const {
  const Interval all = limits(DType::i64);
  std::vector<int64_t> factors;
  Wide multiple = 1;
  if (dims_.empty() || !count_of(e, factors, multiple)) return all;
  for (const std::vector<int64_t>& dims : dims_) {
    std::vector<int64_t> left = dims;
    const bool among = std::all_of(factors.begin(), factors.end(), [&](int64_t id) {
      const auto found = std::find(left.begin(), left.end(), id);
      return found != left.end() && (left.erase(found), true);
    });
    if (among) return wrapped({0, multiple * max_elements}, DType::i64);
  }
  return all;
}

// Bounds for any lane of a vector, for when lanes are permuted: facts from a mask hold only for its active lanes and do
// not apply.
Interval Ranges::any_lane(const Expr& e) const {
  if (const Var* v = e.as<Var>())
    for (const Entry& entry : vars_)
      if (entry.id == v->id) return intersect(entry.range, limits(e.dtype()));
  if (e.lanes() == 1 || e.as<Broadcast>() || e.as<Ramp>()) return interval(e);
  return node_interval(e, true);
}

Interval Ranges::node_interval(const Expr& e, bool any) const {
  const auto operand = [&](const Expr& x) { return any ? any_lane(x) : interval(x); };
  const DType dtype = e.dtype();
  const Interval all = limits(dtype);
  if (is_float(dtype)) return all;
  if (const Const* c = e.as<Const>()) {
    const Wide value = dtype == DType::u64 || dtype == DType::boolean ? Wide{c->bits} : Wide{*as_int(e)};
    return {value, value};
  }
  if (const Load* l = e.as<Load>()) {
    Interval v = all;
    const Facts& facts = l->buffer->facts;
    if (facts.min) v = intersect(v, {interval(facts.min).low, v.high});
    if (facts.max) v = intersect(v, {v.low, interval(facts.max).high});
    return l->guard ? unite(v, operand(l->otherwise)) : v;
  }
  if (const Binary* b = e.as<Binary>()) {
    if (is_comparison(b->op)) return all;
    Interval v = binary_values(b->op, dtype, operand(b->a), operand(b->b));
    if (b->op == BinaryOp::mul && dtype == DType::i64 && !any) v = intersect(v, product_of_dims(e));
    return v;
  }
  if (const Unary* u = e.as<Unary>()) {
    const Interval a = operand(u->a);
    if (u->op == UnaryOp::neg) return wrapped(negate(a), dtype);
    if (u->op == UnaryOp::abs) {
      if (a.empty() || a.low >= 0) return a;
      return wrapped(unite(intersect(a, {0, all.high}), negate(intersect(a, {all.low, 0}))), dtype);
    }
    return all;
  }
  if (const Select* s = e.as<Select>()) return unite(operand(s->a), operand(s->b));
  if (const Cast* c = e.as<Cast>()) {
    if (is_float(c->value.dtype())) return all;
    const Interval v = operand(c->value);
    if (dtype != DType::boolean || v.empty()) return wrapped(v, dtype);
    return v.low > 0 || v.high < 0 ? Interval{1, 1} : v.low == 0 && v.high == 0 ? Interval{0, 0} : all;
  }
  if (const Broadcast* b = e.as<Broadcast>()) return interval(b->value);
  if (const Ramp* r = e.as<Ramp>())
    return wrapped(lanes_of(interval(r->base), interval(r->stride), 0, r->lanes - 1), dtype);
  if (const Shuffle* s = e.as<Shuffle>()) {
    if (const Ramp* r = s->a.as<Ramp>(); r && !s->b && s->lanes.size() == 1)
      return wrapped(lanes_of(interval(r->base), interval(r->stride), s->lanes[0], s->lanes[0]), dtype);
    return s->b ? unite(any_lane(s->a), any_lane(s->b)) : any_lane(s->a);
  }
  return all;
}

}  // namespace gradloom::ir
