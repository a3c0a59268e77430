#pragma once
// What is known of an integer expression's value: bounds over loop variables, lets, facts and guards, and divisibility.
#include <optional>
#include <unordered_map>

#include "ir/stmt.h"

namespace gradloom::ir {

// Inclusive; absent: unbounded on that side. Arithmetic that could leave i64 gives an unbounded side.
struct Range {
  std::optional<int64_t> min, max;
  bool single() const { return min && max && *min == *max; }
};

// A scope of known variables. Copyable; entering a loop or let adds a variable.
class Ranges {
 public:
  Ranges() = default;
  explicit Ranges(const Kernel& kernel);  // the scalars' declared ranges
  void set(int64_t var_id, Range range);
  void enter(const For& loop);
  void enter(const Let& let);
  void assume(const Expr& condition);  // inside a guard: v < n and the like tighten v and n
  Range of(const Expr& e) const;       // of all lanes; loads use their buffer's facts
  // Whether a boolean is proved true (or false); nullopt: unknown. Compares symbolically as well: n - 1 < n, i + 4 <= n under i < n - 3.
  std::optional<bool> proves(const Expr& condition) const;

 private:
  std::unordered_map<int64_t, Range> vars_;
  std::unordered_map<int64_t, Expr> lets_;
  std::vector<Expr> assumed_;
};

// The largest power of two known to divide e (0 is divisible by all: 2^62).
int64_t known_multiple(const Expr& e, const Ranges& ranges);

// e as constant + sum of coefficient * term over opaque terms: the normal form of index arithmetic.
struct Linear {
  int64_t constant = 0;
  std::vector<std::pair<Expr, int64_t>> terms;  // no two terms equal, no zero coefficient
};
Linear linear(const Expr& e);
Expr to_expr(const Linear& l);

}  // namespace gradloom::ir
