#pragma once
// Intervals of an integer type's values, in arithmetic wide enough not to overflow.
#include <optional>

#include "gradloom/expr.h"

namespace gradloom::ir {

using Wide = __int128;

// Inclusive; low > high: the empty interval, as in unreachable code.
struct Interval {
  Wide low = 0, high = 0;
  bool empty() const { return low > high; }
  bool single() const { return low == high; }
  bool contains(const Interval& other) const { return other.empty() || (low <= other.low && other.high <= high); }
};

constexpr Interval empty_interval{1, 0};
// Values out of this representation's range, and all results computed from such.
constexpr Interval everything{-(Wide{1} << 126), Wide{1} << 126};
Interval limits(DType dtype);  // all values of an integer type or bool; of a float type those of i64
inline bool fits_i64(const Interval& v) { return limits(DType::i64).contains(v); }

Interval intersect(const Interval& a, const Interval& b);
Interval unite(const Interval& a, const Interval& b);
// Exact results wrapped to the type: an interval where all of them wrap equally often, else the whole type.
Interval wrapped(const Interval& exact, DType dtype);
// Whether a cast preserves every value: between integers, to a type that contains the source's range.
bool keeps_value(DType from, DType to);
// The exact results, before wrapping; `everything` where one may exceed that.
Interval add(const Interval& a, const Interval& b);
Interval negate(const Interval& a);
Interval multiply(const Interval& a, const Interval& b);
// The values of an operator on a type, wrapped; a comparison's are [0, 1].
Interval binary_values(BinaryOp op, DType dtype, const Interval& a, const Interval& b);
// The outcome of an integer comparison if it is the same for all values of both (nonempty) intervals; nothing: it
// varies.
std::optional<bool> compare_values(BinaryOp op, const Interval& a, const Interval& b);

Wide floor_divide(Wide a, Wide b);  // b > 0

}  // namespace gradloom::ir
