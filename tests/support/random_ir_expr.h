#pragma once
// Expressions of a random kernel, over the loops, lets and buffers in scope: every index in bounds, every divisor
// proved nonzero.
#include <optional>
#include <vector>

#include "gradloom/stmt.h"
#include "ir/index_math.h"
#include "ir/scalar_math.h"
#include "tests/support/random_draw.h"

namespace gradloom::ir::testing {

struct RandomIrScope {
  struct Axis {
    Expr extent;
    int64_t size;  // the extent's value in this case
  };
  struct Array {
    Buffer buffer;
    std::vector<int> axes;
    int indexes = -1;  // the axis that an index buffer's values are indices of
  };
  struct Index {
    int axis;
    Expr var;
  };

  std::vector<Axis> axes;
  std::vector<Array> readable;
  std::vector<Index> indices;  // of the enclosing loops
  std::vector<Expr> values;    // enclosing lets
};

class RandomIrExpr : RandomDraw {
 public:
  RandomIrExpr(std::mt19937_64& random, const RandomIrScope& scope) : RandomDraw(random), scope_(scope) {}

  DType number() {
    static const std::vector<DType> dtypes{DType::f32, DType::f32, DType::f64, DType::i32, DType::i64, DType::u8,
                                           DType::i16, DType::u32, DType::u64, DType::i8,  DType::u16};
    return any(dtypes);
  }
  DType element() {
    static const std::vector<DType> storage{DType::f16, DType::bf16, DType::boolean};
    return chance(25) ? any(storage) : number();
  }

  Expr read(DType t) {
    for (int tries = 0; tries < 4; ++tries) {
      const Array& array = any(scope_.readable);
      std::optional<std::vector<Expr>> index = somewhere(array);
      if (!index) continue;
      if (!index->empty() && chance(20)) {  // a shifted neighbour, where there is one
        const size_t d = pick(static_cast<int>(index->size()));
        const int by = 1 + pick(3);
        const Expr moved = chance(50) ? (*index)[d] - by : (*index)[d] + by;
        const Expr inside = (moved >= 0) & (moved < scope_.axes[array.axes[d]].extent);
        (*index)[d] = moved;
        return cast(t, load(array.buffer, *index, inside, constant_bits(array.buffer->dtype, 0)));
      }
      if (chance(10)) return cast(t, load(array.buffer, *index, condition(1), leaf(array.buffer->dtype)));
      return cast(t, load(array.buffer, *index));
    }
    return literal(t);
  }
  Expr leaf(DType t) {
    if (chance(15)) return literal(t);
    if (!scope_.values.empty() && chance(30)) return cast(t, any(scope_.values));
    if (!scope_.indices.empty() && chance(25)) return cast(t, any(scope_.indices).var);
    return read(t);
  }
  Expr condition(int depth) {
    static const std::vector<BinaryOp> comparisons{BinaryOp::eq, BinaryOp::ne, BinaryOp::lt,
                                                   BinaryOp::le, BinaryOp::gt, BinaryOp::ge};
    if (!scope_.indices.empty() && chance(50)) {
      const Index& i = any(scope_.indices);
      return binary(any(comparisons), i.var, chance(50) ? Expr(pick(10)) : scope_.axes[i.axis].extent - pick(4));
    }
    const DType t = number();
    return binary(any(comparisons), value(t, depth - 1), value(t, depth - 1));
  }
  Expr value(DType t, int depth) {
    if (depth <= 0 || chance(15)) return leaf(t);
    if (t == DType::boolean) return chance(30) ? condition(depth) & condition(depth) : condition(depth);
    if (is_storage_float(t)) return cast(t, value(chance(70) ? DType::f32 : number(), depth - 1));
    const auto operand = [&] { return value(t, depth - 1); };
    const int what = pick(100);
    if (what < 10) return cast(t, value(element(), depth - 1));
    if (what < 22) return select(condition(depth - 1), operand(), operand());
    if (is_float(t)) return float_operation(what, operand);
    static const std::vector<BinaryOp> two{BinaryOp::add, BinaryOp::sub,     BinaryOp::mul,    BinaryOp::min,
                                           BinaryOp::max, BinaryOp::bit_and, BinaryOp::bit_or, BinaryOp::bit_xor};
    static const std::vector<UnaryOp> one{UnaryOp::neg, UnaryOp::bit_not, UnaryOp::abs};
    static const std::vector<int> divisors{1, 2, 3, 7, 8, 127, -1, -3, -4};
    if (what < 32)
      return binary(chance(50) ? BinaryOp::floor_div : BinaryOp::floor_mod, operand(), constant_int(t, any(divisors)));
    if (what < 36 && t != DType::u64) {  // divisors that vary across lanes; those of u64 are not proved
      const Expr divisor = binary(BinaryOp::max, operand(), constant_int(t, 1 + pick(3)));
      return binary(chance(50) ? BinaryOp::floor_div : BinaryOp::floor_mod, operand(), divisor);
    }
    if (what < 42)
      return binary(chance(50) ? BinaryOp::shl : BinaryOp::shr, operand(), constant_int(t, pick(size_of(t) * 8)));
    if (what < 45) {  // a bitwise select of two values by a constant mask
      const int bits = pick(size_of(t) * 8 - 1) + 1;
      const Expr mask = constant_bits(t, (uint64_t{1} << bits) - 1);
      return (operand() & mask) | (operand() & unary(UnaryOp::bit_not, mask));
    }
    return what < 52 ? unary(any(one), operand()) : binary(any(two), operand(), operand());
  }

 private:
  using Array = RandomIrScope::Array;
  using Index = RandomIrScope::Index;
  // Any in-bounds index over the loops in scope; empty when some axis has none.
  std::optional<std::vector<Expr>> somewhere(const Array& array) {
    std::vector<Expr> index;
    for (int axis : array.axes) {
      std::vector<Expr> fitting;
      for (const Index& i : scope_.indices)
        if (i.axis == axis) fitting.push_back(i.var);
      if (fitting.empty()) {
        if (!as_int(scope_.axes[axis].extent)) return std::nullopt;
        index.push_back(pick(static_cast<int>(scope_.axes[axis].size)));
      } else {
        Expr i = any(fitting);
        index.push_back(chance(15) ? scope_.axes[axis].extent - 1 - i : i);
      }
    }
    return index;
  }

  Expr literal(DType t) {
    if (is_float(t)) return constant(t, (pick(129) - 64) / 8.0);
    return constant_int(t, pick(33) - 16);
  }

  const RandomIrScope& scope_;
};

}  // namespace gradloom::ir::testing
