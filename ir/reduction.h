#pragma once
// What a reduction means, in nodes: its identity, and loops of the same terms.
#include <optional>
#include <string>
#include <string_view>

#include "gradloom/stmt.h"

namespace gradloom::ir {

// The value that a fold begins with: +0.0 (or 0) of sums, 1 of products, the largest value of min, the least of max;
// infinities of floats.
Expr identity(AccumulateOp op, DType dtype);

// Whether folds of floats by op differ in rounding with the order of their terms.
inline bool rounds(AccumulateOp op) { return op != AccumulateOp::min && op != AccumulateOp::max; }
// What op's folds are called: "sums" or "products".
inline std::string folds(AccumulateOp op) { return op == AccumulateOp::mul ? "products" : "sums"; }

// The inverse of to_string(SumOrder). Throws Error(invalid_argument), "no order of a reduction: ring; it is ..."; a
// block's or chunk's range is the reduction's to check.
SumOrder sum_order(std::string_view text);

// The reduction in order of its loops, whatever its order is: the same terms, accesses and facts, and where the order
// is `loop` or `any`, min, max, or of integers, the same bits. Its variables become those loops'.
Stmt in_loops(const Reduce& reduction);

// The reduction with lets that stand around it, outermost first, as its own; its guard and its destination, which are
// evaluated before them, have their values.
Reduce with_outer_lets(Reduce reduction, const std::vector<Reduce::Definition>& lets);

// The reduction with the lets that its terms were written in, and nothing else in them, as its own; absent where
// `terms` holds another statement.
std::optional<Reduce> with_lets_of(Reduce reduction, Stmt terms);

// The statement with the reduction's definitions around it.
Stmt with_lets(const Reduce& reduction, Stmt body);

}  // namespace gradloom::ir
