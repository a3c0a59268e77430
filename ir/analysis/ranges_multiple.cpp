// Powers of two that divide an expression.
#include <algorithm>
#include <bit>

#include "ir/analysis/linear.h"
#include "ir/analysis/ranges.h"

namespace gradloom::ir {

int64_t known_multiple(const Expr& e, const Ranges& ranges) {
  constexpr int64_t all = int64_t{1} << 62;
  auto of_constant = [&](int64_t v) {
    return v == 0 ? all : std::min(all, int64_t{1} << std::min(62, std::countr_zero(static_cast<uint64_t>(v))));
  };
  auto times = [&](int64_t a, int64_t b) { return a > all / b ? all : a * b; };
  auto of_term = [&](const Expr& t) -> int64_t {
    if (const Var* v = t.as<Var>()) {
      const Expr* value = ranges.let_value(v->id);
      return value && is_int(value->dtype()) && !value->as<Load>() ? known_multiple(*value, ranges) : 1;
    }
    if (const Cast* c = t.as<Cast>())
      return is_int(c->value.dtype()) && size_of(c->value.dtype()) >= size_of(t.dtype())
                 ? known_multiple(c->value, ranges)
                 : 1;
    if (const Select* s = t.as<Select>()) return std::min(known_multiple(s->a, ranges), known_multiple(s->b, ranges));
    if (const Ramp* r = t.as<Ramp>())
      return std::min(known_multiple(r->base, ranges), known_multiple(r->stride, ranges));
    if (const Binary* b = t.as<Binary>()) {
      const std::optional<int64_t> c = as_int(b->b);
      switch (b->op) {
        case BinaryOp::mul:
          return times(known_multiple(b->a, ranges), known_multiple(b->b, ranges));
        case BinaryOp::add:
        case BinaryOp::sub:
        case BinaryOp::min:
        case BinaryOp::max:
          return std::min(known_multiple(b->a, ranges), known_multiple(b->b, ranges));
        case BinaryOp::floor_mod:
          return std::min(known_multiple(b->a, ranges), known_multiple(b->b, ranges));
        case BinaryOp::floor_div:
          if (c && *c > 0 && std::has_single_bit(static_cast<uint64_t>(*c)))
            return std::max<int64_t>(1, known_multiple(b->a, ranges) / *c);
          return 1;
        case BinaryOp::bit_and:
          return std::max(known_multiple(b->a, ranges), known_multiple(b->b, ranges));
        case BinaryOp::shr:
          if (c && *c >= 0 && *c < 62) return std::max<int64_t>(1, known_multiple(b->a, ranges) >> *c);
          return 1;
        default:
          return 1;
      }
    }
    return 1;
  };
  if (!is_int(e.dtype())) return 1;
  if (e.dtype() != DType::i64) {
    if (std::optional<int64_t> c = as_int(e)) return of_constant(*c);
    if (const Broadcast* b = e.as<Broadcast>()) return known_multiple(b->value, ranges);
    return of_term(e);
  }
  const Linear l = ranges.expand(e);
  int64_t result = of_constant(l.constant);
  for (const auto& [term, coefficient] : l.terms)
    result =
        std::min(result, times(of_constant(coefficient), term.same_as(e) || term.as<Binary>() || term.as<Select>() ||
                                                                 term.as<Var>() || term.as<Cast>()
                                                             ? of_term(term)
                                                             : 1));
  return result;
}

}  // namespace gradloom::ir
