#pragma once
// Random kernels that are valid by construction: every index in bounds, every element written before it is read, no
// result dependent on an unspecified order. The same seed gives the same kernel and the same data (with one compiler:
// the evaluation order of operands, and so of the draws, is the compiler's).
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "gradloom/builder.h"
#include "ir/index_math.h"
#include "ir/scalar_math.h"
#include "tests/support/random_ir_expr.h"

namespace gradloom::ir::testing {

struct RandomCase {
  Kernel kernel;
  std::vector<std::vector<uint8_t>> buffers;  // initial contents, one per kernel buffer
  std::vector<int64_t> scalars;
};

class RandomIr : RandomDraw {
 public:
  explicit RandomIr(uint64_t seed) : RandomDraw(engine_), engine_(seed), builder_("fuzz" + std::to_string(seed)) {}

  RandomCase build() {
    declare();
    const int nests = 2 + pick(4);
    for (int k = 0; k < nests; ++k) nest();
    RandomCase result;
    for (const Array& array : parameters_) result.buffers.push_back(contents(array));
    for (const Axis& axis : scope_.axes)
      if (!as_int(axis.extent)) result.scalars.push_back(axis.size);
    result.kernel = builder_.build();
    return result;
  }

 private:
  using Axis = RandomIrScope::Axis;
  using Array = RandomIrScope::Array;

  std::string name(const char* stem) { return stem + std::to_string(names_++); }

  void declare() {
    for (int k = 0; k < 3; ++k) {
      static const std::vector<int> extents{1, 2, 3, 4, 5, 7, 8, 12, 16, 19};
      if (chance(40)) {
        const int64_t size = chance(10) ? 0 : 1 + pick(20);
        scope_.axes.push_back({builder_.scalar(name("n"), 0, 64), size});
      } else {
        const int64_t size = any(extents);
        scope_.axes.push_back({size, size});
      }
    }
    const int inputs = 1 + pick(3), updated = 1 + pick(2), outputs = 1 + pick(3);
    for (int k = 0; k < inputs; ++k) {
      const std::vector<int> axes = some_axes();
      scope_.readable.push_back(parameter(builder_.input(name("x"), draw_.element(), dims(axes)), axes));
    }
    for (int k = 0; k < updated; ++k) {
      const std::vector<int> axes = some_axes();
      updated_.push_back(parameter(builder_.inout(name("g"), draw_.number(), dims(axes)), axes));
    }
    for (int k = 0; k < outputs; ++k) {
      const std::vector<int> axes = some_axes();
      unwritten_.push_back(parameter(builder_.output(name("y"), draw_.element(), dims(axes)), axes));
    }
    // Reading an updated buffer makes dependences that a schedule must respect.
    if (chance(40)) scope_.readable.push_back(any(updated_));
    const std::vector<int> rows{pick(3)};
    indices_ = parameter(builder_.input(name("indices"), DType::i64, dims(rows)), rows);
    indices_.indexes = parameters_.back().indexes = updated_[0].axes.empty() ? 0 : updated_[0].axes[0];
    more_indices_ = parameter(builder_.input(name("indices"), DType::i64, dims(rows)), rows);
    more_indices_.indexes = parameters_.back().indexes = updated_[0].axes.size() < 2 ? 0 : updated_[0].axes[1];
  }
  std::vector<int> some_axes() {
    std::vector<int> axes(chance(10) ? 0 : 1 + pick(3));
    for (int& axis : axes) axis = pick(3);
    return axes;
  }
  std::vector<Expr> dims(const std::vector<int>& axes) {
    std::vector<Expr> list;
    for (int axis : axes) list.push_back(scope_.axes[axis].extent);
    return list;
  }
  Array parameter(Buffer buffer, std::vector<int> axes) {
    parameters_.push_back({std::move(buffer), std::move(axes)});
    return parameters_.back();
  }

  std::vector<uint8_t> contents(const Array& array) {
    int64_t count = 1;
    for (int axis : array.axes) count *= scope_.axes[axis].size;
    const DType t = array.buffer->dtype;
    const int size = size_of(t);
    const bool bad = chance(10);
    std::vector<uint8_t> bytes(static_cast<size_t>(count) * size);
    for (int64_t k = 0; k < count; ++k) {
      uint64_t bits = 0;
      if (array.indexes >= 0) {
        const int64_t limit = scope_.axes[array.indexes].size;
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

  // One loop per axis, around `body`.
  void loops(std::vector<int> axes, const std::function<void()>& body) {
    if (axes.empty()) return body();
    const int axis = axes.front();
    axes.erase(axes.begin());
    builder_.loop(name("i"), 0, scope_.axes[axis].extent, [&](Expr i) {
      scope_.indices.push_back({axis, i});
      const size_t known = scope_.values.size();
      if (chance(15)) scope_.values.push_back(builder_.let(name("v"), draw_.value(draw_.number(), 2)));
      loops(axes, body);
      scope_.values.resize(known);
      scope_.indices.pop_back();
    });
  }
  // The indices of an access to `array` by the innermost loops, dim by dim.
  std::vector<Expr> innermost(const Array& array) {
    std::vector<Expr> index;
    for (size_t d = 0; d < array.axes.size(); ++d)
      index.push_back(scope_.indices[scope_.indices.size() - array.axes.size() + d].var);
    return index;
  }
  void nest() {
    const int what = pick(100);
    if (what < 30 && !unwritten_.empty()) {
      const Array array = unwritten_.back();
      unwritten_.pop_back();
      define(array);
    } else if (what < 45) {
      const std::vector<int> axes = some_axes();
      define({builder_.alloc(name("t"), draw_.element(), dims(axes)), axes});
    } else if (what < 60) {
      update(any(updated_));
    } else if (what < 82) {
      scatter(updated_[0]);
    } else if (what < 92) {
      bound_inside();
    } else {
      outer();
    }
  }

  // Indices, bounds and divisors that are defined, or known, only inside a loop.
  void bound_inside() {
    const Array& array = any(updated_);
    if (array.axes.empty()) return update(array);
    const Expr extent = scope_.axes[array.axes[0]].extent;
    const std::vector<int> rest(array.axes.begin() + 1, array.axes.end());
    loops({array.axes[0]}, [&] {
      const Expr first = scope_.indices.back().var;
      const Expr last = extent - 1;
      Expr row = first;  // the row that is accumulated into
      const auto add_row = [&] {
        loops(rest, [&] {
          std::vector<Expr> at{row};
          for (size_t d = 0; d < rest.size(); ++d)
            at.push_back(scope_.indices[scope_.indices.size() - rest.size() + d].var);
          add(array.buffer, at);
        });
      };
      const size_t known = scope_.values.size();
      switch (pick(6)) {
        case 0: {  // a row index from memory
          const Buffer kept = builder_.alloc(name("kept"), DType::i64, {1});
          builder_.store(kept, {0}, min(max(draw_.value(DType::i64, 1), Expr(0)), last));
          row = load(kept, {0});
          return add_row();
        }
        case 1:  // a row under a condition
          return builder_.if_then(draw_.condition(1), [&] {
            row = builder_.let(name("row"), min(max(draw_.read(DType::i64), Expr(0)), last));
            add_row();
          });
        case 2: {  // a divisor that a guard proves nonzero
          const int least = pick(4);
          if (as_int(extent).value_or(64) <= least) return add_row();
          return builder_.if_then(extent > least, [&] {
            scope_.values.push_back(floor_div(cast(DType::i64, draw_.leaf(DType::i64)), extent - least));
            row = min(max(scope_.values.back(), Expr(0)), last);
            add_row();
            scope_.values.resize(known);
          });
        }
        case 3:  // a triangular loop: as many iterations as the row's index
          builder_.loop(name("i"), chance(50) ? Expr(0) : first - pick(3), chance(50) ? first : Expr(1 + pick(3)),
                        [&](Expr i) {
                          scope_.values.push_back(i);
                          row = chance(50) ? first : min(max(i, Expr(0)), last);
                          add_row();
                          scope_.values.resize(known);
                        });
          return;
        case 4: {  // a trip count from memory
          const Expr count = min(max(draw_.read(DType::i64), Expr(0)), Expr(3));
          builder_.loop(name("i"), 0, count, [&](Expr i) {
            scope_.values.push_back(i);
            add_row();
            scope_.values.resize(known);
          });
          return;
        }
        default: {  // a row of a group, with a check that cannot fail
          const Expr group = floor_div(first, 2) * 2;
          row = builder_.let(name("row"), min(min(max(draw_.read(DType::i64), group), group + 1), last));
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
            draw_.condition(2), [&] { builder_.store(array.buffer, at, draw_.value(t, 3)); },
            [&] { builder_.store(array.buffer, at, draw_.value(t, 2)); });
      builder_.store(array.buffer, at, draw_.value(t, 4));
      if (chance(10)) builder_.store(array.buffer, at, draw_.value(t, 2), draw_.condition(1));
    });
    scope_.readable.push_back(array);
  }
  void reduce(const Array& array, const std::vector<Expr>& at) {
    const DType t = accumulator_of(array.buffer->dtype == DType::boolean ? DType::i32 : array.buffer->dtype);
    Buffer sum = builder_.alloc(name("sum"), t, {1});
    if (chance(50)) {
      declared_sum(sum);
    } else {
      builder_.store(sum, {0}, constant_int(t, 0));
      loops({pick(3)}, [&] { add(sum, {0}); });
    }
    builder_.store(array.buffer, at, cast(array.buffer->dtype, load(sum, {0})));
  }
  // Over one or two axes, in a declared order.
  void declared_sum(const Buffer& sum) {
    const DType t = sum->dtype;
    static const std::vector<SumOrder> orders{SumOrder::in_loops(), SumOrder::in_tree(16),  SumOrder::in_tree(32),
                                              SumOrder::in_tree(),  SumOrder::in_chunks(5), SumOrder::in_any()};
    Reduce n{.buffer = sum, .index = {0}, .op = AccumulateOp::add, .order = any(orders)};
    const size_t known = scope_.indices.size(), values = scope_.values.size();
    for (int k = pick(2); k >= 0; --k) {
      const int axis = pick(3);
      n.ranges.push_back({make_var(name("r")), 0, scope_.axes[axis].extent});
      scope_.indices.push_back({axis, var(n.ranges.back().var)});
    }
    if (chance(30)) n.guard = draw_.condition(1);
    if (chance(30)) {
      n.lets.push_back({make_var(name("v"), {t, 1}), draw_.value(t, 2)});
      scope_.values.push_back(var(n.lets.back().var));
    }
    static const std::vector<AccumulateOp> ops{AccumulateOp::add, AccumulateOp::min, AccumulateOp::max,
                                               AccumulateOp::mul};
    n.op = is_float(t) && chance(30) ? AccumulateOp::fma : any(ops);
    n.value = draw_.value(t, 3);
    if (n.op == AccumulateOp::fma) n.factor = draw_.value(t, 2);
    scope_.indices.resize(known), scope_.values.resize(values);
    builder_.append(ir::reduce(std::move(n)));
  }
  void add(const Buffer& buffer, const std::vector<Expr>& at) {
    const DType t = buffer->dtype;
    static const std::vector<AccumulateOp> ops{AccumulateOp::add, AccumulateOp::add, AccumulateOp::min,
                                               AccumulateOp::max, AccumulateOp::mul};
    if (is_float(t) && chance(30))
      builder_.accumulate(buffer, at, draw_.value(t, 2), AccumulateOp::fma, draw_.value(t, 2));
    else
      builder_.accumulate(buffer, at, draw_.value(t, 3), any(ops));
  }
  // A reduction over the array's axes and perhaps one more, inside or outside of them.
  void update(const Array& array) {
    std::vector<int> axes = array.axes;
    const bool more = chance(50);
    if (more) axes.insert(axes.begin(), pick(3));
    loops(axes, [&] {
      const std::vector<Expr> at = innermost(array);
      if (chance(25))
        builder_.if_then(draw_.condition(2), [&] { add(array.buffer, at); });
      else
        add(array.buffer, at);
      if (chance(20)) add(array.buffer, at);
    });
  }
  // Scatters: accumulates into elements that index buffers select in the first dim, or the first two. The other dims'
  // loops stand around or in the loop over positions, and what says where an element goes around or in those.
  void scatter(const Array& array) {
    if (array.axes.empty()) return update(array);
    const size_t chosen = array.axes.size() > 1 && chance(30) ? 2 : 1;
    if (chance(30))
      loops(array.axes, [&] { builder_.store(array.buffer, innermost(array), zero({array.buffer->dtype, 1})); });
    std::vector<int> around, inside;
    std::vector<bool> is_around;
    for (size_t d = chosen; d < array.axes.size(); ++d) {
      is_around.push_back(chance(25));
      (is_around.back() ? around : inside).push_back(array.axes[d]);
    }
    const bool late = chance(30), guarded = chance(30);
    loops(around, [&] {
      const size_t outer = scope_.indices.size() - around.size();
      loops(indices_.axes, [&] {
        const Expr k = scope_.indices.back().var;
        const auto add_at = [&](const std::vector<Expr>& destination) {
          size_t from_outer = outer, from_inner = scope_.indices.size() - inside.size();
          std::vector<Expr> at = destination;
          for (const bool outside : is_around) at.push_back(scope_.indices[outside ? from_outer++ : from_inner++].var);
          const auto update = [&] { add(array.buffer, at); };
          if (guarded && chance(40)) return builder_.if_then(draw_.condition(1), update);
          update();
        };
        if (late) return loops(inside, [&] { destination(array, chosen, k, add_at); });
        const auto rest = [&] {
          destination(array, chosen, k, [&](const std::vector<Expr>& at) { loops(inside, [&] { add_at(at); }); });
        };
        if (guarded && chance(50)) return builder_.if_then(draw_.condition(1), rest);
        rest();
      });
    });
  }
  // The checked destination of position k, in the first dims.
  void destination(const Array& array, size_t dims, const Expr& k,
                   const std::function<void(const std::vector<Expr>&)>& body) {
    std::vector<Expr> at;
    Expr checked;
    for (size_t d = 0; d < dims; ++d) {
      const Expr extent = scope_.axes[array.axes[d]].extent;
      const Expr raw = load((d == 0 ? indices_ : more_indices_).buffer, {k});
      const Expr target = chance(15)   ? raw
                          : chance(10) ? min(max(raw, Expr(0)), extent - 1)
                                       : builder_.let(name("row"), raw);
      checked = both(checked, (target >= 0) & (target < extent));
      at.push_back(target);
    }
    if (chance(15)) return builder_.if_then(checked, [&] { body(at); });
    builder_.check(checked, k, "indices", [&] { body(at); });
  }
  // Several statements in one loop over the outermost axis of an updated array.
  void outer() {
    const Array& array = any(updated_);
    if (array.axes.empty()) return update(array);
    const std::vector<int> rest(array.axes.begin() + 1, array.axes.end());
    loops({array.axes[0]}, [&] {
      const Expr first = scope_.indices.back().var;
      for (int k = 0; k < 2; ++k)
        loops(rest, [&] {
          std::vector<Expr> at{first};
          for (size_t d = 0; d < rest.size(); ++d)
            at.push_back(scope_.indices[scope_.indices.size() - rest.size() + d].var);
          if (chance(40))
            builder_.store(array.buffer, at, draw_.value(array.buffer->dtype, 3));
          else
            add(array.buffer, at);
        });
    });
  }

  std::mt19937_64 engine_;
  KernelBuilder builder_;
  RandomIrScope scope_;
  RandomIrExpr draw_{engine_, scope_};
  std::vector<Array> parameters_, updated_, unwritten_;
  Array indices_, more_indices_;
  int names_ = 0;
};

}  // namespace gradloom::ir::testing
