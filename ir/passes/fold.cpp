#include "ir/passes/fold.h"

#include <algorithm>
#include <numeric>

#include "ir/scalar_math.h"

namespace gradloom::ir {

const Const* uniform(const Expr& e) {
  if (const Broadcast* b = e.as<Broadcast>()) return b->value.as<Const>();
  return e.as<Const>();
}

namespace {

Expr uniform_bits(Type type, uint64_t bits) { return broadcast(constant_bits(type.dtype, bits), type.lanes); }
bool is_bits(const Expr& e, uint64_t bits) {
  const Const* c = uniform(e);
  return c && c->bits == bits;
}
bool is_value(const Expr& e, int64_t value) { return is_bits(e, bits_from_int(e.dtype(), value)); }
bool is_true(const Expr& e) { return e.dtype() == DType::boolean && is_bits(e, 1); }
bool is_false(const Expr& e) { return e.dtype() == DType::boolean && is_bits(e, 0); }
Expr boolean(bool value, int lanes) { return uniform_bits({DType::boolean, lanes}, value); }

// The arithmetic nodes that `linear` decomposes.
int linear_size(const Expr& e) {
  if (const Broadcast* b = e.as<Broadcast>()) return linear_size(b->value);
  if (const Unary* u = e.as<Unary>(); u && u->op == UnaryOp::neg) return 1 + linear_size(u->a);
  const Binary* b = e.as<Binary>();
  if (!b || e.dtype() != DType::i64) return 0;
  if (b->op == BinaryOp::add || b->op == BinaryOp::sub) return 1 + linear_size(b->a) + linear_size(b->b);
  if (b->op == BinaryOp::mul && (uniform(b->a) || uniform(b->b))) return 1 + linear_size(b->a) + linear_size(b->b);
  return 0;
}

Expr fold_index(const Expr& e) {
  const Linear l = linear(e);
  if (!l.exact) return e;
  if (e.lanes() == 1) {
    int size = l.terms.empty() ? -1 : static_cast<int>(l.terms.size()) - 1;
    bool positive = l.constant > 0;
    for (const auto& [term, coefficient] : l.terms)
      size += coefficient != 1 && coefficient != -1, positive |= coefficient > 0;
    size += l.constant != 0 || l.terms.empty();
    size += !positive && !l.terms.empty();
    return size < linear_size(e) ? to_expr(l) : e;
  }
  // A ramp plus scalars is a ramp.
  int lanes_terms = 0;
  for (const auto& [term, coefficient] : l.terms) lanes_terms += term.lanes() > 1;
  if (lanes_terms > 1) return e;
  Expr result = to_expr(l);
  return result.as<Ramp>() || result.as<Broadcast>() ? result : e;
}

// Divides lanes that lie within one multiple of c only once: terms that are uniform across lanes and share a factor g
// with c are divided by g (over c / g), where the remaining sum stays within [0, g). Not done for scalars: it would
// hide from loop proofs that a quotient and a remainder belong together.
std::optional<Linear> fold_lanes_division(BinaryOp op, const Linear& l, int64_t c, const Ranges& scope) {
  if (l.lanes == 1) return std::nullopt;
  const auto below = [](int64_t value, int64_t of) {
    return static_cast<int64_t>(value - floor_divide(value, of) * of);
  };
  std::vector<int64_t> factors;
  for (const auto& [term, coefficient] : l.terms)
    if (const int64_t g = std::gcd(below(coefficient, c), c); term.lanes() == 1 && g > 1 && g < c) factors.push_back(g);
  std::sort(factors.rbegin(), factors.rend());
  for (const int64_t g : factors) {
    Linear kept, rest;
    rest.lanes = l.lanes;
    for (const auto& [term, coefficient] : l.terms) {
      const bool shared = coefficient % g == 0 && term.lanes() == 1;
      shared ? kept.add(term, coefficient / g) : rest.add(term, coefficient);
    }
    rest.constant = below(l.constant, g);
    kept.constant = static_cast<int64_t>(floor_divide(l.constant, g));
    if (!scope.within(rest, 0, g - 1)) continue;
    const Expr divided = binary(op, to_expr(kept), Expr(c / g));
    if (op == BinaryOp::floor_mod) return rest.add(divided, g), rest;
    Linear quotient;
    quotient.add(divided, 1);
    quotient.lanes = l.lanes;
    return quotient;
  }
  return std::nullopt;
}

// floor_div and floor_mod of c * q + r: reduced to r, and folded away where 0 <= r < c.
Expr fold_division(const Binary& n, const Expr& e, const Ranges& scope) {
  const Const* divisor = uniform(n.b);
  if (!divisor || e.dtype() != DType::i64) return e;
  const int64_t c = int_from_bits(DType::i64, divisor->bits);
  if (c < 1) return e;
  const bool is_mod = n.op == BinaryOp::floor_mod;
  if (c == 1) return is_mod ? zero(e.type()) : n.a;
  const Linear l = linear(n.a);
  if (!l.exact || !scope.fits(scope.expand(n.a))) return e;  // may have wrapped
  Linear quotient, rest;
  quotient.lanes = rest.lanes = e.lanes();
  for (const auto& [term, coefficient] : l.terms) {
    if (coefficient % c == 0)
      quotient.add(term, coefficient / c);
    else
      rest.add(term, coefficient);
  }
  quotient.constant = static_cast<int64_t>(floor_divide(l.constant, c));
  rest.constant = static_cast<int64_t>(l.constant - Wide{quotient.constant} * c);
  if (scope.within(rest, 0, c - 1)) return to_expr(is_mod ? rest : quotient);
  // A term bounded only by its type or by launch limits is kept intact: dependence proofs look for it.
  if (!scope.within(rest, 1 - max_elements, max_elements - 1)) return e;
  const bool all = quotient.terms.empty();
  if (const std::optional<Linear> once = fold_lanes_division(n.op, all ? l : rest, c, scope)) {
    if (is_mod || all) return to_expr(*once);
    quotient.add(*once);
    return to_expr(quotient);
  }
  if (all) return e;
  const Expr of_rest = binary(n.op, to_expr(rest), n.b);
  return is_mod ? of_rest : to_expr(quotient) + of_rest;
}

Expr fold_float(const Binary& n, const Expr& e) {
  const DType t = e.dtype();
  const uint64_t one = bits_from_int(t, 1), minus_zero = bits_from_double(t, -0.0);
  switch (n.op) {  // exact also for -0.0 and NaN: x + 0.0 is therefore not folded
    case BinaryOp::mul:
      return is_bits(n.b, one) ? n.a : is_bits(n.a, one) ? n.b : e;
    case BinaryOp::div:
      return is_bits(n.b, one) ? n.a : e;
    case BinaryOp::add:
      return is_bits(n.b, minus_zero) ? n.a : is_bits(n.a, minus_zero) ? n.b : e;
    case BinaryOp::sub:
      return is_bits(n.b, 0) ? n.a : e;
    default:
      return e;
  }
}

Expr fold_integer(const Binary& n, const Expr& e, const Ranges& scope) {
  switch (n.op) {
    case BinaryOp::add:
      if (is_value(n.b, 0)) return n.a;
      if (is_value(n.a, 0)) return n.b;
      return e.dtype() == DType::i64 ? fold_index(e) : e;
    case BinaryOp::sub:
      if (is_value(n.b, 0)) return n.a;
      if (equal(n.a, n.b)) return zero(e.type());
      return e.dtype() == DType::i64 ? fold_index(e) : e;
    case BinaryOp::mul:
      if (is_value(n.a, 0) || is_value(n.b, 0)) return zero(e.type());
      if (is_value(n.b, 1)) return n.a;
      if (is_value(n.a, 1)) return n.b;
      return e.dtype() == DType::i64 ? fold_index(e) : e;
    case BinaryOp::floor_div:
    case BinaryOp::floor_mod:
      return fold_division(n, e, scope);
    case BinaryOp::min:
    case BinaryOp::max: {
      if (equal(n.a, n.b)) return n.a;
      const std::optional<bool> below = scope.proves(n.a <= n.b);
      if (below) return *below == (n.op == BinaryOp::min) ? n.a : n.b;
      const std::optional<bool> above = scope.proves(n.b <= n.a);
      if (above) return *above == (n.op == BinaryOp::min) ? n.b : n.a;
      return e;
    }
    case BinaryOp::shl:
    case BinaryOp::shr:
      return is_value(n.b, 0) ? n.a : e;
    case BinaryOp::bit_and:
    case BinaryOp::bit_or: {
      const bool is_and = n.op == BinaryOp::bit_and;
      if (equal(n.a, n.b)) return n.a;
      if (is_bits(n.a, 0)) return is_and ? n.a : n.b;
      if (is_bits(n.b, 0)) return is_and ? n.b : n.a;
      if (is_true(n.a)) return is_and ? n.b : n.a;
      if (is_true(n.b)) return is_and ? n.a : n.b;
      return e;
    }
    case BinaryOp::bit_xor:
      return is_bits(n.b, 0) ? n.a : is_bits(n.a, 0) ? n.b : e;
    default:
      return e;
  }
}

struct Fold {
  const Ranges& scope;
  const Expr& e;

  Expr operator()(const Const&) const { return e; }
  Expr operator()(const Var&) const { return e; }
  Expr operator()(const Load& n) const {
    if (!n.guard) return e;
    const std::optional<bool> guard = scope.proves(n.guard);
    if (!guard) return e;
    return *guard ? broadcast(load(n.buffer, n.index), e.lanes()) : broadcast(n.otherwise, e.lanes());
  }
  Expr operator()(const Unary& n) const {
    if (const Const* a = uniform(n.a)) return uniform_bits(e.type(), eval_unary(n.op, e.dtype(), a->bits));
    const Unary* inner = n.a.as<Unary>();
    if (inner && inner->op == n.op && (n.op == UnaryOp::bit_not || n.op == UnaryOp::neg)) return inner->a;
    return e;
  }
  Expr operator()(const Binary& n) const {
    const DType operand = n.a.dtype();
    const Const *a = uniform(n.a), *b = uniform(n.b);
    if (a && b && is_defined(n.op, operand, b->bits))
      return uniform_bits(e.type(), eval_binary(n.op, operand, a->bits, b->bits));
    if (is_comparison(n.op)) {
      const std::optional<bool> proved = scope.proves(e);
      return proved ? boolean(*proved, e.lanes()) : e;
    }
    return is_float(operand) ? fold_float(n, e) : fold_integer(n, e, scope);
  }
  Expr operator()(const Fma& n) const {
    const Const *a = uniform(n.a), *b = uniform(n.b), *c = uniform(n.c);
    return a && b && c ? uniform_bits(e.type(), eval_fma(e.dtype(), a->bits, b->bits, c->bits)) : e;
  }
  Expr operator()(const Select& n) const {
    if (is_true(n.condition)) return n.a;
    if (is_false(n.condition)) return n.b;
    return equal(n.a, n.b) ? n.a : e;
  }
  Expr operator()(const Cast& n) const {
    const Const* value = uniform(n.value);
    return value ? uniform_bits(e.type(), eval_cast(n.value.dtype(), e.dtype(), value->bits)) : e;
  }
  Expr operator()(const Bitcast& n) const {
    if (const Const* value = uniform(n.value)) return uniform_bits(e.type(), value->bits);
    const Bitcast* inner = n.value.as<Bitcast>();
    return inner ? bitcast(e.dtype(), inner->value) : e;
  }
  Expr operator()(const Ramp& n) const { return is_value(n.stride, 0) ? broadcast(n.base, n.lanes) : e; }
  Expr operator()(const Broadcast&) const { return e; }
  Expr operator()(const Shuffle& n) const {
    if (n.b) return e;
    if (const Broadcast* b = n.a.as<Broadcast>()) return broadcast(b->value, e.lanes());
    const Ramp* r = n.a.as<Ramp>();
    if (!r || e.lanes() != 1) return e;
    return fold(r->base + fold(r->stride * constant_int(e.dtype(), n.lanes[0]), scope), scope);
  }
  Expr operator()(const Intrinsic& n) const {
    if (n.op == IntrinsicOp::prefetch) return e;
    const Const* c = uniform(n.args[0]);
    return c ? boolean(c->bits != 0, 1) : e;
  }
  Expr operator()(const Math&) const { return e; }
};

}  // namespace

Expr fold(const Expr& e, const Ranges& scope) { return std::visit(Fold{scope, e}, e.node().value); }

}  // namespace gradloom::ir
