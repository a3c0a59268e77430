#include "tests/support/random_program_expr.h"

#include "ir/rewrite.h"

namespace gradloom::ir::testing {

Expr ProgramExpr::scalar_constant(DType t) {
  if (t == DType::boolean) return constant_bits(t, static_cast<uint64_t>(pick(2)));
  if (is_float(t)) return constant_bits(t, float_bits(t));
  return constant_int(t, chance(40) ? edge() : small());
}
Expr ProgramExpr::lanes_of(Expr e, int lanes) { return broadcast(std::move(e), lanes); }

Expr ProgramExpr::leaf(DType t, int lanes) {
  if (chance(25)) return lanes_of(scalar_constant(t), lanes);
  if (!scope_.values.empty() && chance(50)) {
    for (int tries = 0; tries < 4; ++tries) {
      const Expr& v = any(scope_.values);
      if (v.lanes() == lanes || v.lanes() == 1) return lanes_of(cast(t, v), lanes);
      if (v.lanes() > 1 && chance(50)) {
        std::vector<int> order(static_cast<size_t>(lanes));
        for (int& lane : order) lane = pick(v.lanes());
        return cast(t, shuffle(v, {}, order));
      }
    }
  }
  if (!scope_.scalars.empty() && chance(45)) return lanes_of(cast(t, any(scope_.scalars).e), lanes);
  if (lanes > 1 && is_int(t) && chance(50))
    return ramp(cast(t, leaf(DType::i64, 1)), constant_int(t, chance(60) ? 1 : pick(7) - 3), lanes);
  if (depth_ > 4) return lanes_of(scalar_constant(t), lanes);
  depth_ += 2;
  const Expr e = read(t, lanes);
  depth_ -= 2;
  return e;
}

Expr ProgramExpr::read(DType t, int lanes) {
  for (int tries = 0; tries < 4; ++tries) {
    const Array& array = any(scope_.readable);
    if (chance(35)) {
      if (array.dims.empty()) continue;
      std::vector<Expr> index;
      Expr inside;
      const bool vector_guard = lanes > 1 && chance(60);
      bool vector = false;
      for (size_t d = 0; d < array.dims.size(); ++d) {
        const int here = lanes > 1 && chance(60) ? lanes : 1;
        vector |= here > 1;
        if (!array.empty() && chance(30)) {
          index.push_back(within(array.sizes[d], array.dims[d], here));
          continue;
        }
        const Expr at = chance(40) && !array.empty()
                            ? within(array.sizes[d], array.dims[d], here) + lanes_of(Expr(int64_t{pick(7)} - 3), here)
                            : value(DType::i64, here, 1);
        const Expr ok = in_range(at, array.dims[d]);
        inside = inside ? inside & ok : ok;
        index.push_back(at);
      }
      if (array.empty())
        inside = inside ? inside & lanes_of(constant_bits(DType::boolean, 0), inside.lanes())
                        : constant_bits(DType::boolean, 0);
      if (!inside || chance(20)) {
        const Expr more = condition(vector_guard ? lanes : 1, 1);
        inside = inside ? inside & more : more;
      }
      const int otherwise = lanes > 1 && (vector || inside.lanes() > 1) && chance(50) ? lanes : 1;
      Expr e = load(array.buffer, index, inside, value(array.buffer->dtype, otherwise, chance(60) ? 0 : 1));
      return lanes_of(cast(t, e), lanes);
    }
    if (array.empty()) continue;
    std::vector<Expr> index;
    for (size_t d = 0; d < array.dims.size(); ++d)
      index.push_back(within(array.sizes[d], array.dims[d], lanes > 1 && chance(60) ? lanes : 1));
    return lanes_of(cast(t, load(array.buffer, index)), lanes);
  }
  return lanes_of(scalar_constant(t), lanes);
}

// 0 <= at < dim, in one of its equivalent forms.
Expr ProgramExpr::in_range(const Expr& at, const Expr& dim) {
  switch (pick(4)) {
    case 0:
      return unary(UnaryOp::bit_not, (at < Expr(0)) | (at >= dim));
    case 1:
      return (at > Expr(-1)) & (at <= dim - 1);
    case 2:
      return (at < dim) & (Expr(0) <= at);
    default:
      return (at >= Expr(0)) & (at < dim);
  }
}

// An index in [0, size); in dead code, any.
Expr ProgramExpr::within(int64_t size, const Expr& dim, int lanes) {
  if (scope_.dead && chance(50)) return value(DType::i64, lanes, 1);
  std::vector<Expr> fitting;
  for (const Within& w : scope_.within)
    if (w.size <= size && (w.e.lanes() == 1 || w.e.lanes() == lanes)) fitting.push_back(w.e);
  if (!fitting.empty() && chance(65)) {
    Expr e = any(fitting);
    if (chance(15)) e = dim - 1 - e;
    return lanes_of(e, lanes);
  }
  if (lanes > 1 && size >= lanes && chance(60))
    return ramp(Expr(int64_t{pick(static_cast<int>(size) - lanes + 1)}), 1, lanes);
  const Expr last = dim - 1, none = lanes_of(Expr(0), lanes);
  const Expr e = value(DType::i64, lanes, 1);
  switch (pick(7)) {
    case 0:
      return lanes_of(Expr(int64_t{pick(static_cast<int>(size))}), lanes);
    case 1:
      return max(min(e, lanes_of(last, lanes)), none);
    case 2:
      return size >= 8 ? (e & lanes_of(Expr(7), lanes))
                       : (e & lanes_of(Expr(size >= 4   ? 3
                                            : size >= 2 ? 1
                                                        : 0),
                                       lanes));
    case 3:
      return select(in_range(e, lanes_of(dim, lanes)), e, none);
    case 4:
      for (const Array& array : scope_.readable)
        if (array.values == Array::Values::within && array.low >= 0 && array.high < size && !array.empty() &&
            depth_ < 4) {
          ++depth_;
          std::vector<Expr> index;
          for (size_t d = 0; d < array.dims.size(); ++d) index.push_back(within(array.sizes[d], array.dims[d], lanes));
          --depth_;
          return lanes_of(cast(DType::i64, load(array.buffer, index)), lanes);
        }
      [[fallthrough]];
    case 5:
      if (as_int(dim)) return floor_mod(e, lanes_of(dim, lanes));
      [[fallthrough]];
    default:
      return min(max(e, none), lanes_of(last, lanes));
  }
}

Expr ProgramExpr::condition(int lanes, int depth) {
  static const std::vector<BinaryOp> comparisons{BinaryOp::lt, BinaryOp::le, BinaryOp::gt,
                                                 BinaryOp::ge, BinaryOp::eq, BinaryOp::ne};
  if (chance(8)) return leaf(DType::boolean, lanes);
  if (depth > 0 && chance(25)) {
    static const std::vector<BinaryOp> both{BinaryOp::bit_and, BinaryOp::bit_or, BinaryOp::bit_xor};
    return binary(any(both), condition(lanes, depth - 1), condition(lanes, depth - 1));
  }
  if (chance(8)) return unary(UnaryOp::bit_not, condition(lanes, depth - 1));
  if (lanes == 1 && scope_.shape.vectors && chance(4)) {
    const Expr many = condition(vector_lanes(), 0);
    return chance(50) ? all_lanes(many) : any_lane(many);
  }
  const DType t = chance(70) ? DType::i64 : number();
  const Expr a = value(t, lanes, depth);
  if (chance(20) && t == DType::i64)
    return binary(any(comparisons), a + lanes_of(scalar_constant(t), lanes), a);  // true or false where it wraps
  return binary(any(comparisons), a, chance(50) ? lanes_of(scalar_constant(t), lanes) : value(t, lanes, depth - 1));
}

int ProgramExpr::vector_lanes() {
  static const std::vector<int> list{2, 4, 4, 8, 3, 16};
  return any(list);
}

Expr ProgramExpr::divisor(DType t, int lanes) {
  static const std::vector<int> list{1, 2, 3, 7, 8, 64, -1, -3, -8};
  if (t == DType::i64 && !scope_.positive.empty() && chance(50)) return lanes_of(any(scope_.positive), lanes);
  if (t == DType::i64 && chance(15))
    for (const ScalarValue& s : scope_.scalars)
      if (s.positive && s.e.dtype() == t) return lanes_of(s.e, lanes);
  if (t != DType::u64 && chance(30)) {
    const Expr e = value(t, lanes, 1), limit = lanes_of(constant_int(t, 1 + pick(3)), lanes);
    if (is_signed_int(t) && chance(30)) return min(e, unary(UnaryOp::neg, limit));
    if (chance(30)) return select(e == zero(e.type()), limit, e);
    return max(e, limit);
  }
  if (chance(10)) return lanes_of(constant_int(t, is_signed_int(t) ? lowest >> (64 - 8 * size_of(t)) : highest), lanes);
  return lanes_of(constant_int(t, any(list)), lanes);
}
Expr ProgramExpr::shift_count(DType t, int lanes) {
  const int bits = 8 * size_of(t);
  if (chance(50)) return lanes_of(constant_int(t, pick(bits)), lanes);
  const Expr e = value(t, lanes, 0);
  if (is_signed_int(t) && chance(40)) return min(max(e, zero(e.type())), lanes_of(constant_int(t, bits - 1), lanes));
  if (chance(50)) return floor_mod(e, lanes_of(constant_int(t, bits), lanes));
  return e & lanes_of(constant_int(t, bits - 1), lanes);
}

Expr ProgramExpr::value(DType t, int lanes, int depth) {
  if (depth <= 0 || depth_ > 5 || chance(12)) return leaf(t, lanes);
  ++depth_;
  Expr e = node(t, lanes, depth);
  --depth_;
  return e;
}
Expr ProgramExpr::node(DType t, int lanes, int depth) {
  if (t == DType::boolean) return condition(lanes, depth - 1);
  if (is_storage_float(t)) {
    if (chance(10)) return bitcast(t, value(DType::u16, lanes, depth - 1));
    return cast(t, value(chance(70) ? DType::f32 : number(), lanes, depth - 1));
  }
  const auto operand = [&] { return value(t, lanes, depth - 1); };
  const int what = pick(100);
  if (what < 8) return cast(t, value(element(), lanes, depth - 1));
  if (what < 10 && t == DType::f32) return bitcast(t, value(DType::i32, lanes, depth - 1));
  if (what < 10 && t == DType::i64) {
    const Expr e = value(chance(50) ? DType::f64 : DType::u64, lanes, depth - 1);
    // Executors may differ in the bits of a NaN.
    return bitcast(t, is_float(e.dtype()) ? select(e == e, e, zero(e.type())) : e);
  }
  if (what < 18) return select(condition(chance(40) ? 1 : lanes, depth - 1), operand(), operand());
  if (what < 21 && lanes > 1) {
    const Expr a = operand(), b = operand();
    std::vector<int> order(static_cast<size_t>(lanes));
    for (int& lane : order) lane = pick(2 * lanes);
    return shuffle(a, b, order);
  }
  if (what < 23 && lanes == 1 && scope_.shape.vectors) {
    const int many = vector_lanes();
    return extract(value(t, many, depth - 1), pick(many));
  }
  if (is_float(t)) return float_operation(what, operand);
  static const std::vector<BinaryOp> two{BinaryOp::add,    BinaryOp::add,    BinaryOp::sub, BinaryOp::sub,
                                         BinaryOp::mul,    BinaryOp::min,    BinaryOp::max, BinaryOp::bit_and,
                                         BinaryOp::bit_or, BinaryOp::bit_xor};
  static const std::vector<UnaryOp> one{UnaryOp::neg, UnaryOp::bit_not, UnaryOp::abs};
  if (what < 38) return binary(chance(50) ? BinaryOp::floor_div : BinaryOp::floor_mod, operand(), divisor(t, lanes));
  if (what < 44) return binary(chance(50) ? BinaryOp::shl : BinaryOp::shr, operand(), shift_count(t, lanes));
  if (what < 52) return unary(any(one), operand());
  if (what < 66) return binary(any(two), operand(), lanes_of(scalar_constant(t), lanes));
  return binary(any(two), operand(), operand());
}
// Of scalars and variables alone: the same value wherever it is evaluated.
Expr ProgramExpr::pure() {
  Expr e = chance(30) ? Expr(edge()) : Expr(small());
  std::vector<Expr> known;
  for (const ScalarValue& s : scope_.scalars) known.push_back(cast(DType::i64, s.e));
  for (const Expr& v : scope_.values)
    if (v.lanes() == 1 && !is_float(v.dtype())) known.push_back(cast(DType::i64, v));
  if (known.empty()) return e;
  static const std::vector<BinaryOp> two{BinaryOp::add, BinaryOp::sub, BinaryOp::mul, BinaryOp::min, BinaryOp::max};
  const Expr v = any(known);
  if (chance(30)) return v;
  if (chance(10)) return unary(UnaryOp::neg, v + v);
  return chance(70) ? binary(any(two), v, e) : binary(any(two), v, any(known));
}

}  // namespace gradloom::ir::testing
