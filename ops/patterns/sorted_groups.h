#pragma once
// Positions sorted by key, and the groups of those that have one key: what is added to few of many elements costs what
// is named, in time and memory.
#include "gradloom/builder.h"

namespace gradloom {

// Written by `sort_by_key`. Group g's positions are order[side, first[g]] to order[side, first[g + 1] - 1], ascending.
struct SortedGroups {
  ir::Buffer keys;    // [count]: of the groups, ascending
  ir::Buffer first;   // [count + 1]
  ir::Buffer groups;  // [1]: how many there are
  ir::Buffer order;   // [2, count]
  ir::Buffer side;    // [1]: the row of `order` that is sorted

  // Position number i in sorted order.
  ir::Expr position(const ir::Expr& i) const { return ir::load(order, {ir::load(side, {0}), i}); }
  ir::Expr begin(const ir::Expr& group) const { return ir::load(first, {group}); }
  ir::Expr end(const ir::Expr& group) const { return ir::load(first, {group + 1}); }
};

// `each(place)` goes over positions in [0, count), ascending, and calls place(position, key), a key in [0, range), for
// those that are to be sorted: stably, a byte of the keys at a time, as many as the range has.
using PlaceKey = std::function<void(const ir::Expr& position, const ir::Expr& key)>;
SortedGroups sort_by_key(ir::KernelBuilder& b, const ir::Expr& count, const ir::Expr& range,
                         const std::function<void(const PlaceKey&)>& each);

// for g { for q in columns { store(g, q, the sum of value(position, q) over the group) } }
// Sums start at 0 and add in order of positions. Returns the loop over groups, then those over columns.
std::vector<ir::Loop> sum_groups(
    ir::KernelBuilder& b, const SortedGroups& sorted, DType sum, const std::vector<ir::Expr>& columns,
    const std::function<ir::Expr(const ir::Expr& position, const std::vector<ir::Expr>& q)>& value,
    const std::function<void(const ir::Expr& group, const std::vector<ir::Expr>& q, const ir::Expr& total)>& store);

// A flat position as an index into these dims.
std::vector<ir::Expr> unflattened(ir::Expr position, const std::vector<ir::Expr>& dims);

}  // namespace gradloom
