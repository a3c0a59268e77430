#pragma once
// The elements that a loop's body touches, as index forms over terms whose behaviour across iterations is known: what
// races.cpp decides on.
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
  Expr expr;  // its identity; absent: equal to no other
  Range range;
  bool varies = true;  // may differ between iterations of the loop
  // offsets[s] <= value < offsets[s + 1], offsets nondecreasing and not written in the loop: equal values have an equal
  // s.
  Buffer offsets;
  IndexForm segment;
  // The value is injective[elements], not written in the loop: equal values have equal elements.
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
  std::vector<IndexForm> plain;  // the index without the bounds that guards give its terms, where those were put in
                                 // their place; else empty
  bool atomic = false, ordered = false;
  AccumulateOp op = AccumulateOp::add;
  Range iterations;         // those that reach it, as far as guards tell
  int statement = 0;        // accesses of one statement share it
  bool inner_loop = false;  // inside another loop within the loop
  bool writes() const { return kind != load; }
};

// All accesses below `loop` to buffers that it writes, except to those it allocates.
std::vector<Access> accesses(const For& loop, const Ranges& scope);

}  // namespace gradloom::ir
