#pragma once
// Random kernels that are right by construction: every index in bounds, every element written before it is read, no
// order left open. The same seed gives the same kernel and the same data (with one compiler: it chooses the order in
// which operands are drawn).
#include <cstring>
#include <functional>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "ir/builder.h"
#include "ir/scalar_math.h"

namespace gradloom::ir::testing {

struct RandomCase {
  Kernel kernel;
  std::vector<std::vector<uint8_t>> buffers;  // first contents, one a kernel buffer
  std::vector<int64_t> scalars;
};

class RandomIr {
 public:
  explicit RandomIr(uint64_t seed) : random_(seed), builder_("fuzz" + std::to_string(seed)) {}

  RandomCase build() {
    declare();
    const int nests = 2 + pick(4);
    for (int k = 0; k < nests; ++k) nest();
    RandomCase result;
    for (const Array& array : parameters_) result.buffers.push_back(contents(array));
    for (const Axis& axis : axes_)
      if (!as_int(axis.extent)) result.scalars.push_back(axis.size);
    result.kernel = builder_.build();
    return result;
  }

 private:
  struct Axis {
    Expr extent;
    int64_t size;  // the extent's value in this case
  };
  struct Array {
    Buffer buffer;
    std::vector<int> axes;
    int indexes = -1;  // the axis that an index buffer's values point into
  };
  struct Index {
    int axis;
    Expr var;
  };

  int pick(int n) { return static_cast<int>(random_() % static_cast<uint64_t>(n)); }
  bool chance(int percent) { return pick(100) < percent; }
  template <class T>
  const T& any(const std::vector<T>& list) {
    return list[pick(static_cast<int>(list.size()))];
  }
  std::string name(const char* stem) { return stem + std::to_string(names_++); }

  DType number() {
    static const std::vector<DType> dtypes{DType::f32, DType::f32, DType::f64, DType::i32, DType::i64, DType::u8,
                                           DType::i16, DType::u32, DType::u64, DType::i8,  DType::u16};
    return any(dtypes);
  }
  DType element() {
    static const std::vector<DType> storage{DType::f16, DType::bf16, DType::boolean};
    return chance(25) ? any(storage) : number();
  }

  void declare() {
    for (int k = 0; k < 3; ++k) {
      static const std::vector<int> extents{1, 2, 3, 4, 5, 7, 8, 12, 16, 19};
      if (chance(40)) {
        const int64_t size = chance(10) ? 0 : 1 + pick(20);
        axes_.push_back({builder_.scalar(name("n"), 0, 64), size});
      } else {
        const int64_t size = any(extents);
        axes_.push_back({size, size});
      }
    }
    const int inputs = 1 + pick(3), updated = 1 + pick(2), outputs = 1 + pick(3);
    for (int k = 0; k < inputs; ++k) {
      const std::vector<int> axes = some_axes();
      readable_.push_back(parameter(builder_.input(name("x"), element(), dims(axes)), axes));
    }
    for (int k = 0; k < updated; ++k) {
      const std::vector<int> axes = some_axes();
      updated_.push_back(parameter(builder_.inout(name("g"), number(), dims(axes)), axes));
    }
    for (int k = 0; k < outputs; ++k) {
      const std::vector<int> axes = some_axes();
      unwritten_.push_back(parameter(builder_.output(name("y"), element(), dims(axes)), axes));
    }
    // Reading what is updated makes dependences that a schedule must respect.
    if (chance(40)) readable_.push_back(any(updated_));
    const std::vector<int> rows{pick(3)};
    indices_ = parameter(builder_.input(name("indices"), DType::i64, dims(rows)), rows);
    indices_.indexes = parameters_.back().indexes = updated_[0].axes.empty() ? 0 : updated_[0].axes[0];
  }
  std::vector<int> some_axes() {
    std::vector<int> axes(chance(10) ? 0 : 1 + pick(3));
    for (int& axis : axes) axis = pick(3);
    return axes;
  }
  std::vector<Expr> dims(const std::vector<int>& axes) {
    std::vector<Expr> list;
    for (int axis : axes) list.push_back(axes_[axis].extent);
    return list;
  }
  Array parameter(Buffer buffer, std::vector<int> axes) {
    parameters_.push_back({std::move(buffer), std::move(axes)});
    return parameters_.back();
  }

  std::vector<uint8_t> contents(const Array& array) {
    int64_t count = 1;
    for (int axis : array.axes) count *= axes_[axis].size;
    const DType t = array.buffer->dtype;
    const int size = size_of(t);
    const bool bad = chance(10);
    std::vector<uint8_t> bytes(static_cast<size_t>(count) * size);
    for (int64_t k = 0; k < count; ++k) {
      uint64_t bits = 0;
      if (array.indexes >= 0) {
        const int64_t limit = axes_[array.indexes].size;
        bits = static_cast<uint64_t>(limit == 0 || (bad && chance(20)) ? pick(2) * (limit + 1) - 1
                                                                       : pick(static_cast<int>(limit)));
      } else if (is_float(t)) {
        static const std::vector<double> special{0.0,     -0.0,      1e-42,      -1e300,    1e-310,
                                                 65519.0, 1.0 / 0.0, -1.0 / 0.0, 0.0 / 0.0, 3e9};
        bits = bits_from_double(t, chance(10) ? any(special) : (pick(4001) - 2000) / 64.0);
      } else if (t == DType::boolean) {
        bits = pick(2);
      } else {
        bits = chance(50) ? random_() : bits_from_int(t, pick(41) - 20);
      }
      std::memcpy(&bytes[static_cast<size_t>(k) * size], &bits, size);
    }
    return bytes;
  }

  // One loop an axis, around `body`.
  void loops(std::vector<int> axes, const std::function<void()>& body) {
    if (axes.empty()) return body();
    const int axis = axes.front();
    axes.erase(axes.begin());
    builder_.loop(name("i"), 0, axes_[axis].extent, [&](Expr i) {
      indices_in_scope_.push_back({axis, i});
      const size_t known = values_.size();
      if (chance(15)) values_.push_back(builder_.let(name("v"), value(number(), 2)));
      loops(axes, body);
      values_.resize(known);
      indices_in_scope_.pop_back();
    });
  }
  // The indices of an access to `array` by the innermost loops, dim by dim.
  std::vector<Expr> innermost(const Array& array) {
    std::vector<Expr> index;
    for (size_t d = 0; d < array.axes.size(); ++d)
      index.push_back(indices_in_scope_[indices_in_scope_.size() - array.axes.size() + d].var);
    return index;
  }
  // Any in-bounds index by the loops in scope; empty when some axis has none.
  std::optional<std::vector<Expr>> somewhere(const Array& array) {
    std::vector<Expr> index;
    for (int axis : array.axes) {
      std::vector<Expr> fitting;
      for (const Index& i : indices_in_scope_)
        if (i.axis == axis) fitting.push_back(i.var);
      if (fitting.empty()) {
        if (!as_int(axes_[axis].extent)) return std::nullopt;
        index.push_back(pick(static_cast<int>(axes_[axis].size)));
      } else {
        Expr i = any(fitting);
        index.push_back(chance(15) ? axes_[axis].extent - 1 - i : i);
      }
    }
    return index;
  }

  Expr read(DType t) {
    for (int tries = 0; tries < 4; ++tries) {
      const Array& array = any(readable_);
      std::optional<std::vector<Expr>> index = somewhere(array);
      if (!index) continue;
      if (!index->empty() && chance(20)) {  // a shifted neighbour, where there is one
        const size_t d = pick(static_cast<int>(index->size()));
        const int by = 1 + pick(3);
        const Expr moved = chance(50) ? (*index)[d] - by : (*index)[d] + by;
        const Expr inside = (moved >= 0) & (moved < axes_[array.axes[d]].extent);
        (*index)[d] = moved;
        return cast(t, load(array.buffer, *index, inside, constant_bits(array.buffer->dtype, 0)));
      }
      if (chance(10)) return cast(t, load(array.buffer, *index, condition(1), leaf(array.buffer->dtype)));
      return cast(t, load(array.buffer, *index));
    }
    return literal(t);
  }
  Expr literal(DType t) {
    if (is_float(t)) return constant(t, (pick(129) - 64) / 8.0);
    return constant_int(t, pick(33) - 16);
  }
  Expr leaf(DType t) {
    if (chance(15)) return literal(t);
    if (!values_.empty() && chance(30)) return cast(t, any(values_));
    if (!indices_in_scope_.empty() && chance(25)) return cast(t, any(indices_in_scope_).var);
    return read(t);
  }
  Expr condition(int depth) {
    static const std::vector<BinaryOp> comparisons{BinaryOp::eq, BinaryOp::ne, BinaryOp::lt,
                                                   BinaryOp::le, BinaryOp::gt, BinaryOp::ge};
    if (!indices_in_scope_.empty() && chance(50)) {
      const Index& i = any(indices_in_scope_);
      return binary(any(comparisons), i.var, chance(50) ? Expr(pick(10)) : axes_[i.axis].extent - pick(4));
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
    if (is_float(t)) {
      static const std::vector<BinaryOp> two{BinaryOp::add, BinaryOp::sub, BinaryOp::mul,
                                             BinaryOp::div, BinaryOp::min, BinaryOp::max};
      static const std::vector<UnaryOp> one{UnaryOp::neg,   UnaryOp::abs,  UnaryOp::sqrt,
                                            UnaryOp::floor, UnaryOp::ceil, UnaryOp::trunc};
      if (what < 35) return fma(operand(), operand(), operand());
      return what < 50 ? unary(any(one), operand()) : binary(any(two), operand(), operand());
    }
    static const std::vector<BinaryOp> two{BinaryOp::add, BinaryOp::sub,     BinaryOp::mul,    BinaryOp::min,
                                           BinaryOp::max, BinaryOp::bit_and, BinaryOp::bit_or, BinaryOp::bit_xor};
    static const std::vector<UnaryOp> one{UnaryOp::neg, UnaryOp::bit_not, UnaryOp::abs};
    static const std::vector<int> divisors{1, 2, 3, 7, 8, 127, -1, -3, -4};
    if (what < 32)
      return binary(chance(50) ? BinaryOp::floor_div : BinaryOp::floor_mod, operand(), constant_int(t, any(divisors)));
    if (what < 36 && t != DType::u64) {  // divisors that differ from lane to lane; those of u64 are not proved
      const Expr divisor = binary(BinaryOp::max, operand(), constant_int(t, 1 + pick(3)));
      return binary(chance(50) ? BinaryOp::floor_div : BinaryOp::floor_mod, operand(), divisor);
    }
    if (what < 42)
      return binary(chance(50) ? BinaryOp::shl : BinaryOp::shr, operand(), constant_int(t, pick(size_of(t) * 8)));
    if (what < 45) {  // the bits of two values put together
      const int bits = pick(size_of(t) * 8 - 1) + 1;
      const Expr mask = constant_bits(t, (uint64_t{1} << bits) - 1);
      return (operand() & mask) | (operand() & unary(UnaryOp::bit_not, mask));
    }
    return what < 52 ? unary(any(one), operand()) : binary(any(two), operand(), operand());
  }

  void nest() {
    const int what = pick(100);
    if (what < 30 && !unwritten_.empty()) {
      const Array array = unwritten_.back();
      unwritten_.pop_back();
      define(array);
    } else if (what < 45) {
      const std::vector<int> axes = some_axes();
      define({builder_.alloc(name("t"), element(), dims(axes)), axes});
    } else if (what < 70) {
      update(any(updated_));
    } else if (what < 82) {
      scatter(updated_[0]);
    } else if (what < 92) {
      bound_inside();
    } else {
      outer();
    }
  }

  // Indices, bounds and divisors that exist, or are known, only inside a loop.
  void bound_inside() {
    const Array& array = any(updated_);
    if (array.axes.empty()) return update(array);
    const Expr extent = axes_[array.axes[0]].extent;
    const std::vector<int> rest(array.axes.begin() + 1, array.axes.end());
    loops({array.axes[0]}, [&] {
      const Expr first = indices_in_scope_.back().var;
      const Expr last = extent - 1;
      Expr row = first;  // the row that is added to
      const auto add_row = [&] {
        loops(rest, [&] {
          std::vector<Expr> at{row};
          for (size_t d = 0; d < rest.size(); ++d)
            at.push_back(indices_in_scope_[indices_in_scope_.size() - rest.size() + d].var);
          add(array.buffer, at);
        });
      };
      const size_t known = values_.size();
      switch (pick(6)) {
        case 0: {  // a row kept in memory
          const Buffer kept = builder_.alloc(name("kept"), DType::i64, {1});
          builder_.store(kept, {0}, min(max(value(DType::i64, 1), Expr(0)), last));
          row = load(kept, {0});
          return add_row();
        }
        case 1:  // a row found under a condition
          return builder_.if_then(condition(1), [&] {
            row = builder_.let(name("row"), min(max(read(DType::i64), Expr(0)), last));
            add_row();
          });
        case 2: {  // a divisor that is proved by a guard
          const int least = pick(4);
          if (as_int(extent).value_or(64) <= least) return add_row();
          return builder_.if_then(extent > least, [&] {
            values_.push_back(floor_div(cast(DType::i64, leaf(DType::i64)), extent - least));
            row = min(max(values_.back(), Expr(0)), last);
            add_row();
            values_.resize(known);
          });
        }
        case 3:  // as many iterations as the row's number
          return builder_.loop(name("i"), chance(50) ? Expr(0) : first - pick(3),
                               chance(50) ? first : Expr(1 + pick(3)), [&](Expr i) {
                                 values_.push_back(i);
                                 row = chance(50) ? first : min(max(i, Expr(0)), last);
                                 add_row();
                                 values_.resize(known);
                               });
        case 4: {  // as many as memory says
          const Expr count = min(max(read(DType::i64), Expr(0)), Expr(3));
          return builder_.loop(name("i"), 0, count, [&](Expr i) {
            values_.push_back(i);
            add_row();
            values_.resize(known);
          });
        }
        default: {  // one of the rows of a group, whose check could not fail
          const Expr group = floor_div(first, 2) * 2;
          row = builder_.let(name("row"), min(min(max(read(DType::i64), group), group + 1), last));
          return builder_.check((row >= group) & (row <= group + 1), first, "rows", [&] { add_row(); });
        }
      }
    });
  }

  // Writes every element of the array once, which is readable from then on.
  void define(const Array& array) {
    loops(array.axes, [&] {
      const DType t = array.buffer->dtype;
      const std::vector<Expr> at = innermost(array);
      if (chance(25)) return reduce(array, at);
      if (chance(25))
        return builder_.if_then(
            condition(2), [&] { builder_.store(array.buffer, at, value(t, 3)); },
            [&] { builder_.store(array.buffer, at, value(t, 2)); });
      builder_.store(array.buffer, at, value(t, 4));
      if (chance(10)) builder_.store(array.buffer, at, value(t, 2), condition(1));
    });
    readable_.push_back(array);
  }
  void reduce(const Array& array, const std::vector<Expr>& at) {
    const DType t = accumulator_of(array.buffer->dtype == DType::boolean ? DType::i32 : array.buffer->dtype);
    Buffer sum = builder_.alloc(name("sum"), t, {1});
    builder_.store(sum, {0}, constant_int(t, 0));
    loops({pick(3)}, [&] { add(sum, {0}); });
    builder_.store(array.buffer, at, cast(array.buffer->dtype, load(sum, {0})));
  }
  void add(const Buffer& buffer, const std::vector<Expr>& at) {
    const DType t = buffer->dtype;
    static const std::vector<AccumulateOp> ops{AccumulateOp::add, AccumulateOp::add, AccumulateOp::min,
                                               AccumulateOp::max};
    if (is_float(t) && chance(30))
      builder_.accumulate(buffer, at, value(t, 2), AccumulateOp::fma, value(t, 2));
    else
      builder_.accumulate(buffer, at, value(t, 3), any(ops));
  }
  // Accumulates over the array's axes and perhaps one more, inside or outside of them.
  void update(const Array& array) {
    std::vector<int> axes = array.axes;
    const bool more = chance(50);
    if (more) axes.insert(axes.begin(), pick(3));
    loops(axes, [&] {
      const std::vector<Expr> at = innermost(array);
      if (chance(25))
        builder_.if_then(condition(2), [&] { add(array.buffer, at); });
      else
        add(array.buffer, at);
      if (chance(20)) add(array.buffer, at);
    });
  }
  // Accumulates into rows that the index buffer names.
  void scatter(const Array& array) {
    if (array.axes.empty()) return update(array);
    loops(indices_.axes, [&] {
      const Expr row = indices_in_scope_.back().var;
      const Expr target = builder_.let(name("row"), load(indices_.buffer, {row}));
      builder_.check((target >= 0) & (target < axes_[indices_.indexes].extent), row, "indices", [&] {
        const std::vector<int> rest(array.axes.begin() + 1, array.axes.end());
        loops(rest, [&] {
          std::vector<Expr> at{target};
          for (size_t d = 0; d < rest.size(); ++d)
            at.push_back(indices_in_scope_[indices_in_scope_.size() - rest.size() + d].var);
          add(array.buffer, at);
        });
      });
    });
  }
  // Several statements in one loop over the outermost axis of an updated array.
  void outer() {
    const Array& array = any(updated_);
    if (array.axes.empty()) return update(array);
    const std::vector<int> rest(array.axes.begin() + 1, array.axes.end());
    loops({array.axes[0]}, [&] {
      const Expr first = indices_in_scope_.back().var;
      for (int k = 0; k < 2; ++k)
        loops(rest, [&] {
          std::vector<Expr> at{first};
          for (size_t d = 0; d < rest.size(); ++d)
            at.push_back(indices_in_scope_[indices_in_scope_.size() - rest.size() + d].var);
          if (chance(40))
            builder_.store(array.buffer, at, value(array.buffer->dtype, 3));
          else
            add(array.buffer, at);
        });
    });
  }

  std::mt19937_64 random_;
  KernelBuilder builder_;
  std::vector<Axis> axes_;
  std::vector<Array> parameters_, readable_, updated_, unwritten_;
  Array indices_;
  std::vector<Index> indices_in_scope_;
  std::vector<Expr> values_;  // lets in scope
  int names_ = 0;
};

}  // namespace gradloom::ir::testing
