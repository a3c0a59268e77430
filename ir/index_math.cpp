#include "ir/index_math.h"

#include <algorithm>

#include "ir/rewrite.h"
#include "ir/scalar_math.h"

namespace gradloom::ir {
namespace {

std::optional<Expr> fold(BinaryOp op, const Expr& a, const Expr& b) {
  const Const *x = a.as<Const>(), *y = b.as<Const>();
  if (!x || !y) return std::nullopt;
  return constant_bits(a.dtype(), eval_binary(op, a.dtype(), x->bits, y->bits));
}

// A vector as base + lane * stride.
struct Lanes {
  Expr base, stride;
};
std::optional<Lanes> as_lanes(const Expr& e) {
  if (e.lanes() == 1) return Lanes{e, constant_int(e.dtype(), 0)};
  if (const Ramp* r = e.as<Ramp>()) return Lanes{r->base, r->stride};
  if (const Broadcast* b = e.as<Broadcast>(); b && b->value.lanes() == 1)
    return Lanes{b->value, constant_int(e.dtype(), 0)};
  return std::nullopt;
}
Expr from_lanes(const Expr& base, const Expr& stride, int lanes) {
  return is_const(stride, 0) ? broadcast(base, lanes) : ramp(base, stride, lanes);
}

}  // namespace

Expr index_add(const Expr& a, const Expr& b) {
  if (auto c = fold(BinaryOp::add, a, b)) return *c;
  if (is_const(a, 0)) return b;
  if (is_const(b, 0)) return a;
  if (a.lanes() > 1 || b.lanes() > 1) {
    auto x = as_lanes(a), y = as_lanes(b);
    if (x && y)
      return from_lanes(index_add(x->base, y->base), index_add(x->stride, y->stride), std::max(a.lanes(), b.lanes()));
  }
  return a + b;
}

Expr index_sub(const Expr& a, const Expr& b) {
  if (auto c = fold(BinaryOp::sub, a, b)) return *c;
  if (is_const(b, 0)) return a;
  if (a.lanes() == 1 && b.lanes() == 1) return equal(a, b) ? constant_int(a.dtype(), 0) : a - b;
  auto x = as_lanes(a), y = as_lanes(b);
  if (x && y)
    return from_lanes(index_sub(x->base, y->base), index_sub(x->stride, y->stride), std::max(a.lanes(), b.lanes()));
  return a - b;
}

Expr index_mul(const Expr& a, const Expr& b) {
  if (auto c = fold(BinaryOp::mul, a, b)) return *c;
  if (is_const(a, 1) || is_const(b, 0)) return b;
  if (is_const(b, 1) || is_const(a, 0)) return a;
  if (a.lanes() > 1 || b.lanes() > 1) {
    auto x = as_lanes(a), y = as_lanes(b);
    const int lanes = std::max(a.lanes(), b.lanes());
    if (x && y && is_const(y->stride, 0))
      return from_lanes(index_mul(x->base, y->base), index_mul(x->stride, y->base), lanes);
    if (x && y && is_const(x->stride, 0))
      return from_lanes(index_mul(x->base, y->base), index_mul(x->base, y->stride), lanes);
  }
  return a * b;
}

Expr index_min(const Expr& a, const Expr& b) {
  if (auto c = fold(BinaryOp::min, a, b)) return *c;
  return equal(a, b) ? a : min(a, b);
}

Expr index_max(const Expr& a, const Expr& b) {
  if (auto c = fold(BinaryOp::max, a, b)) return *c;
  return equal(a, b) ? a : max(a, b);
}

Expr index_div(const Expr& a, int64_t b) {
  if (b == 1) return a;
  if (auto c = fold(BinaryOp::floor_div, a, b)) return *c;
  return floor_div(a, b);
}

Expr index_mod(const Expr& a, int64_t b) {
  if (b == 1) return 0;
  if (auto c = fold(BinaryOp::floor_mod, a, b)) return *c;
  return floor_mod(a, b);
}

bool has_load(const Expr& e) {
  return any_of(e, [](const Expr& x) { return x.as<Load>() != nullptr; });
}

Expr first_lane(const Expr& e) {
  if (e.lanes() == 1) return e;
  if (auto lanes = as_lanes(e)) return lanes->base;
  return extract(e, 0);
}

Expr both(const Expr& a, const Expr& b) {
  if (!a) return b;
  if (!b) return a;
  return a & b;
}

}  // namespace gradloom::ir
