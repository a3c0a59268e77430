#include "ops/patterns/sorted_groups.h"

namespace gradloom {

using ir::Buffer;
using ir::Expr;

namespace {

constexpr int digit_bits = 8, digits = 8, digit_values = 1 << digit_bits;

Expr shifted(const Expr& e, const Expr& bits) { return ir::binary(ir::BinaryOp::shr, e, bits); }

// One pass of the sort: from row t % 2 of keys and order to the other one.
void sort_by_digit(ir::KernelBuilder& b, const Expr& t, const Expr& live, const Buffer& keys, const Buffer& order) {
  const Expr from = b.let("from", t & 1), to = b.let("to", 1 - from), shift = b.let("shift", t * digit_bits);
  const Buffer next = b.alloc("next", DType::i64, {digit_values + 1});
  const auto digit = [&](const Expr& key) { return shifted(key, shift) & (digit_values - 1); };
  b.loop("c", 0, digit_values + 1, [&](const Expr& c) { b.store(next, {c}, 0); });
  b.loop("h", 0, live, [&](const Expr& i) { b.accumulate(next, {digit(ir::load(keys, {from, i})) + 1}, 1); });
  b.loop("s", 0, digit_values, [&](const Expr& s) { b.accumulate(next, {s + 1}, ir::load(next, {s})); });
  b.loop("m", 0, live, [&](const Expr& i) {
    const Expr key = b.let("key", ir::load(keys, {from, i})), value = b.let("digit", digit(key)),
               slot = b.let("slot", ir::load(next, {value}));
    b.store(keys, {to, slot}, key);
    b.store(order, {to, slot}, ir::load(order, {from, i}));
    b.store(next, {value}, slot + 1);
  });
}

}  // namespace

SortedGroups sort_by_key(ir::KernelBuilder& b, const Expr& count, const Expr& range,
                         const std::function<void(const PlaceKey&)>& each) {
  const ir::Facts sizes{.min = 0, .max = count};
  SortedGroups sorted;
  sorted.keys = b.alloc("group_keys", DType::i64, {count}, {.min = 0, .max = range - 1, .injective = true});
  sorted.first = b.alloc("first", DType::i64, {count + 1}, sizes);
  sorted.groups = b.alloc("groups", DType::i64, {1}, sizes);
  sorted.order = b.alloc("order", DType::i64, {2, count}, {.min = 0, .max = count - 1});
  sorted.side = b.alloc("side", DType::i64, {1}, {.min = 0, .max = 1});
  const Buffer keys = b.alloc("keys", DType::i64, {2, count}, {.min = 0, .max = range - 1}),
               live = b.alloc("live", DType::i64, {1}, sizes);
  b.store(live, {0}, 0);
  each([&](const Expr& position, const Expr& key) {
    const Expr slot = b.let("slot", ir::load(live, {0}));
    b.store(keys, {0, slot}, key);
    b.store(sorted.order, {0, slot}, position);
    b.store(live, {0}, slot + 1);
  });

  b.store(sorted.side, {0}, 0);
  b.loop("t", 0, digits, [&](const Expr& t) {
    b.if_then(shifted(range - 1, t * digit_bits) > 0, [&] {
      sort_by_digit(b, t, ir::load(live, {0}), keys, sorted.order);
      b.store(sorted.side, {0}, 1 - (t & 1));
    });
  });

  b.store(sorted.groups, {0}, 0);
  const Expr side = b.let("sorted", ir::load(sorted.side, {0}));
  b.loop("i", 0, ir::load(live, {0}), [&](const Expr& i) {
    const Expr key = b.let("key", ir::load(keys, {side, i}));
    const Expr before = b.let("before", ir::load(keys, {side, i - 1}, i > 0, -1));
    b.if_then(key != before, [&] {
      const Expr g = b.let("g", ir::load(sorted.groups, {0}));
      b.store(sorted.keys, {g}, key);
      b.store(sorted.first, {g}, i);
      b.store(sorted.groups, {0}, g + 1);
    });
  });
  b.store(sorted.first, {ir::load(sorted.groups, {0})}, ir::load(live, {0}));
  return sorted;
}

std::vector<ir::Loop> sum_groups(
    ir::KernelBuilder& b, const SortedGroups& sorted, DType sum, const std::vector<Expr>& columns,
    const std::function<Expr(const Expr& position, const std::vector<Expr>& q)>& value,
    const std::function<void(const Expr& group, const std::vector<Expr>& q, const Expr& total)>& store) {
  std::vector<ir::Loop> loops, inner;
  loops.push_back(b.loop("g", 0, sorted.keys->dims[0], [&](const Expr& g) {
    b.if_then(g < ir::load(sorted.groups, {0}), [&] {
      const Expr begin = b.let("begin", sorted.begin(g)), end = b.let("end", sorted.end(g));
      inner = b.loops("q", columns, [&](const std::vector<Expr>& q) {
        const Buffer total = b.alloc("total", sum, {1}, {}, ir::Space::registers);
        b.store(total, {0}, ir::zero({sum, 1}));
        b.loop("a", begin, end - begin, [&](const Expr& i) {
          const Expr position = b.let("position", sorted.position(i));
          b.accumulate(total, {0}, value(position, q));
        });
        store(g, q, ir::load(total, {0}));
      });
    });
  }));
  loops.insert(loops.end(), inner.begin(), inner.end());
  return loops;
}

std::vector<Expr> unflattened(Expr position, const std::vector<Expr>& dims) {
  std::vector<Expr> index(dims.size());
  for (size_t d = dims.size(); d-- > 1;) {
    const Expr divisor = ir::as_int(dims[d]) ? dims[d] : ir::max(dims[d], 1);  // proved nonzero
    index[d] = ir::floor_mod(position, divisor);
    position = ir::floor_div(position, divisor);
  }
  if (!dims.empty()) index[0] = position;
  return index;
}

}  // namespace gradloom
