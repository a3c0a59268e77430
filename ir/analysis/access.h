#pragma once
// The elements that a loop's body accesses, as linear index forms over terms whose behaviour across iterations is
// known: the input of the dependence test in races.cpp.
#include <memory>
#include <unordered_set>

#include "ir/analysis/ranges.h"

namespace gradloom::ir {

struct IndexTerm;
// constant + sum of coefficient * term, as a mathematical value. No coefficient is larger than `largest` either way.
struct IndexForm {
  static constexpr int64_t largest = int64_t{1} << 61;
  int64_t constant = 0;
  std::vector<std::pair<std::shared_ptr<const IndexTerm>, int64_t>> terms;
};

struct IndexTerm {
  Expr expr;  // its identity; absent: equal to no other term
  Range range;
  bool varies = true;  // may differ between iterations of the loop
  // offsets[s] <= value < offsets[s + 1], where offsets is nondecreasing and loop-invariant: equal values have an equal
  // s.
  Buffer offsets;
  IndexForm segment;
  // The value is injective[elements], loop-invariant: equal values have equal elements.
  Buffer injective;
  std::vector<IndexForm> elements;
  // The value is floor_div(dividend, divisor), or floor_mod; the divisor is the same in all iterations.
  Expr divisor;
  bool is_mod = false;
  IndexForm dividend;
};

struct Access {
  enum Kind { load, store, accumulate } kind;
  Buffer buffer;
  std::vector<IndexForm> index;
  // The index with its original terms, where `index` replaced them by bounds from guards; else empty.
  std::vector<IndexForm> plain;
  bool atomic = false, ordered = false;
  AccumulateOp op = AccumulateOp::add;
  Range iterations;         // iterations that execute it, as far as guards show
  int statement = 0;        // accesses of one statement share it
  size_t part = 0;          // the statement of the loop's body that it is in
  bool inner_loop = false;  // inside another loop within the loop
  bool writes() const { return kind != load; }
};

// All accesses below `loop` to buffers that it writes, except to those it allocates.
std::vector<Access> accesses(const For& loop, const Ranges& scope);

}  // namespace gradloom::ir
