#pragma once
// What is known of an integer expression's value: bounds over loop variables, lets, facts and guards, and divisibility.
//
// Bounds by intervals (`of`) hold with wrapping arithmetic. Symbolic comparisons take for granted that i64 arithmetic over loop variables, extents and
// scalars does not wrap (it counts elements of buffers); a value read from memory is trusted only once facts or guards bound it on both sides.
#include <optional>

#include "ir/stmt.h"

namespace gradloom::ir {

// Inclusive; absent: unbounded on that side. Arithmetic that could leave i64 gives an unbounded side.
struct Range {
  std::optional<int64_t> min, max;
  bool single() const { return min && max && *min == *max; }
};

// e as constant + sum of coefficient * term over opaque terms: the normal form of index arithmetic. i64 arithmetic is taken apart, and a cast from a
// narrower integer stands for its operand. A ramp of constant stride is its base plus stride * ramp(0, 1).
struct Linear {
  int64_t constant = 0;
  std::vector<std::pair<Expr, int64_t>> terms;  // no two terms equal, no zero coefficient
  int lanes = 1;
  bool exact = true;  // false: some coefficient wrapped, so that the form holds modulo 2^64 only

  void add(const Expr& term, int64_t coefficient);
  void add(const Linear& other, int64_t factor = 1);
  int64_t coefficient(const Expr& term) const;  // 0: not there
};
Linear linear(const Expr& e);
Expr to_expr(const Linear& l);

// A scope of known variables. Copyable; entering a loop or let adds a variable. mark and restore leave a scope without a copy.
class Ranges {
 public:
  struct Mark {
    size_t vars = 0, assumed = 0, conditions = 0;
  };

  Ranges() = default;
  explicit Ranges(const Kernel& kernel);  // the scalars' declared ranges
  void set(int64_t var_id, Range range);
  void enter(const For& loop);
  void enter(const Let& let);
  void assume(const Expr& condition);  // inside a guard: v < n and the like tighten v and n
  Range of(const Expr& e) const;       // of all lanes; loads use their buffer's facts
  // Whether a boolean is proved true (or false) in all lanes; nullopt: unknown. Compares symbolically as well: n - 1 < n, i + 4 <= n under i < n - 3.
  std::optional<bool> proves(const Expr& condition) const;

  // linear(e) with lets put in; a variable that can have one value only is that value, but for `keep`.
  Linear expand(const Expr& e, int64_t keep = 0) const;
  Range of(const Linear& l) const;     // of its mathematical value
  bool nonnegative(const Linear& l) const;
  const Expr* let_value(int64_t var_id) const;                        // nullptr: no let of this scope
  const std::vector<Linear>& assumed() const { return assumed_; }  // each is >= 0
  Mark mark() const { return {vars_.size(), assumed_.size(), conditions_.size()}; }
  void restore(const Mark& mark);

 private:
  friend struct Linearizer;
  struct Entry {  // a later entry of the same id hides an earlier one
    int64_t id = 0;
    Range range;
    Expr value;               // of a let whose expansion is of a size to work with; else it is a variable like others
    int nodes = 1;            // of the value with all lets put in
    bool expandable = false;  // the let's value stays what it is: no load of a buffer that may be written
    bool memory = false;      // the let's value depends on one read from memory
  };
  const Entry* find(int64_t id) const;
  Range raw_range(const Expr& e) const;
  Range binary_range(const Binary& n) const;
  int expanded_nodes(const Expr& e) const;
  bool from_memory(const Expr& e) const;
  bool trusted(const Linear& l) const;
  bool may_wrap(const Linear& side) const;  // of a comparison: arithmetic on untrusted memory
  void assume(const Expr& condition, bool truth);
  void assume_comparison(const Binary& n, bool truth);
  void add_inequality(Linear l);
  void add_axioms(const Linear& l, std::vector<Linear>& to, int depth) const;
  void tighten(const Linear& l);
  bool prove(Linear l, const std::vector<Linear>& axioms, int depth, int& budget) const;
  std::optional<bool> compare(const Binary& n) const;

  std::vector<Entry> vars_;
  std::vector<Linear> assumed_;
  std::vector<std::pair<Expr, bool>> conditions_;  // others, known true or false
};

// The largest power of two known to divide e in every lane (0 is divisible by all: 2^62).
int64_t known_multiple(const Expr& e, const Ranges& ranges);

}  // namespace gradloom::ir
