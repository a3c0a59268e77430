#pragma once
// Value analysis of integer expressions: bounds over loop variables, lets, facts and guards, and divisibility.
//
// Integers wrap, so every proof here holds for all values that a scalar, a loop variable or a loaded element can take:
// arithmetic is treated as exact only where it is proved to stay within i64. A scalar is within its declared range, and
// a parameter within max_elements: launches enforce both.
#include <memory>
#include <optional>
#include <unordered_map>

#include "gradloom/stmt.h"
#include "ir/analysis/interval.h"

namespace gradloom::ir {

// Inclusive; absent: unbounded on that side, up to the limits of i64. min > max: the empty range, as in unreachable
// code.
struct Range {
  std::optional<int64_t> min, max;
  bool single() const { return min && max && *min == *max; }
};

// e as constant + sum of coefficient * term over opaque terms: the normal form of index arithmetic. i64 arithmetic is
// decomposed, and a cast from a narrower integer is transparent. A ramp of constant stride is its base plus stride *
// ramp(0, 1).
struct Linear {
  int64_t constant = 0;
  std::vector<std::pair<Expr, int64_t>> terms;  // no two terms equal, no zero coefficient
  int lanes = 1;
  bool exact = true;  // false: some coefficient wrapped, so that the form holds modulo 2^64 only

  void add(const Expr& term, int64_t coefficient);
  void add(const Linear& other, int64_t factor = 1);
  int64_t coefficient(const Expr& term) const;  // 0: absent
  bool is_term() const { return terms.size() == 1 && constant == 0 && terms[0].second == 1; }
};
Linear linear(const Expr& e);  // modulo 2^64
Expr to_expr(const Linear& l);

// A scope of known variables. Copyable; entering a loop or let adds a variable. Scope restores the state without a
// copy.
class Ranges {
 public:
  struct Mark {
    size_t vars = 0, assumed = 0, conditions = 0, bounds = 0;
    bool never = false;
  };

  Ranges() = default;
  explicit Ranges(
      const Kernel& kernel);  // the scalars' declared ranges, and what launches enforce of the parameters' dims
  void set(int64_t var_id, Range range);
  void enter(const For& loop);
  void enter(const Let& let);
  void assume(const Expr& condition);     // on entering a guard: v < n and the like tighten v and n
  Range of(const Expr& e) const;          // of all lanes; loads use their buffer's facts
  bool nonzero(const Expr& e) const;      // in every lane, by its range
  bool shift_count(const Expr& e) const;  // within [0, bits) in every lane, by its range
  // Whether a boolean is proved true (or false) in all lanes; nullopt: unknown. Compares symbolically as well: n - 1 <
  // n, i + 4 <= n under i < n - 3.
  std::optional<bool> proves(const Expr& condition) const;

  // linear(e) with lets substituted, modulo 2^64; a variable with a single possible value is that value, except `keep`.
  Linear expand(const Expr& e, int64_t keep = 0) const;
  // A form whose mathematical value is e's value: expand(e) where that stays within i64, else e as one term.
  Linear form(const Expr& e, int64_t keep = 0) const;
  // The same for a sum: whether l's mathematical value stays within i64.
  bool fits(const Linear& l) const;
  bool sum_fits(const Expr& a, const Expr& b,
                int64_t more = 0) const;                         // whether a + b + more is their mathematical sum
  bool within(const Linear& l, int64_t min, int64_t max) const;  // whether its mathematical value is, with lets put in
  Range of(const Linear& l) const;                               // of its mathematical value
  bool nonnegative(const Linear& l) const;
  const Expr* let_value(int64_t var_id) const;  // nullptr: no let of this scope
  // The load that e is the value of, through lets and value-preserving casts; nullptr: none. Its buffer and what its
  // index reads may have been written since.
  const Load* load_of(const Expr& e) const;
  const std::vector<Linear>& assumed() const { return assumed_; }  // each is >= 0
  // Whether the assumptions are contradictory, or a loop has no iteration: this code is unreachable, and everything is
  // proved.
  bool never() const { return never_; }
  // Facts entered and assumed during its lifetime are dropped at its end.
  class Scope {
   public:
    explicit Scope(Ranges& ranges) : ranges_(ranges), mark_(ranges.mark()) {}
    Scope(Ranges& ranges, const For& loop) : Scope(ranges) { ranges.enter(loop); }
    Scope(Ranges& ranges, const Let& let) : Scope(ranges) { ranges.enter(let); }
    Scope(Ranges& ranges, const Expr& condition, bool holds = true) : Scope(ranges) {
      if (condition) ranges.assume(condition, holds);
    }
    ~Scope() { ranges_.restore(mark_); }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    Ranges& ranges_;
    const Mark mark_;
  };
  Mark mark() const { return {vars_.size(), assumed_.size(), conditions_.size(), bounds_.size(), never_}; }
  void restore(const Mark& mark);

 private:
  friend struct Linearizer;
  struct Entry {  // a later entry of the same id shadows an earlier one
    int64_t id = 0;
    Interval range;
    Expr value;  // of a let whose expansion is small enough; else the let is treated like any other variable
    std::shared_ptr<const Linear>
        form;             // of an i64 let whose value is stable (no load of a buffer that may be written)
    int nodes = 1;        // of the value with all lets substituted
    bool stable = false;  // the let's value does not change across statements
    bool memory = false;  // the let's value depends on one read from memory
  };
  // Intervals memoised in this scope, by node; a copy starts empty.
  struct Memo {
    std::unordered_map<const ExprNode*, std::pair<Expr, Interval>> known;
    Memo() = default;
    Memo(const Memo&) {}
    Memo& operator=(const Memo&) { return known.clear(), *this; }
  };

  const Entry* find(int64_t id) const;
  void push(Entry entry);
  Interval interval(const Expr& e) const;
  Interval interval_as_written(const Expr& e) const;
  Interval interval(const Linear& l) const;                       // of its exact value
  std::optional<Interval> with_quotient(const Linear& l) const;   // of two terms
  Interval term_interval(const Expr& e) const;                    // of a term that `expand` does not decompose
  Interval node_interval(const Expr& e, bool any = false) const;  // from the node's own semantics; any: as any_lane
  Interval any_lane(const Expr& e) const;         // of lanes moved by a shuffle: no guard applies to them
  Interval product_of_dims(const Expr& e) const;  // bound by max_elements of a product of dims
  bool count_of(const Expr& e, std::vector<int64_t>& dims, Wide& multiple) const;
  // expand(e), whose coefficients may have wrapped: its value is e's if it stays within i64.
  Linear expand_wrapped(const Expr& e, int64_t keep = 0) const;
  Linear quick_form(const Expr& e) const;                       // `form`, by intervals alone
  bool fits_above(const Linear& l) const;                       // at most INT64_MAX
  bool fits_below(const Linear& l) const;                       // at least INT64_MIN
  const Load* input_load(const Expr& e) const;                  // load_of, if its value is the same at any time
  bool in_order(const Expr& earlier, const Expr& later) const;  // elements of one nondecreasing input
  int expanded_nodes(const Expr& e) const;
  bool from_memory(const Expr& e) const;
  void assume(const Expr& condition, bool truth);
  void assume_in_some_lane(const Expr& condition);
  void assume_comparison(const Binary& n, bool truth);
  void add_inequality(Linear l);
  void add_axioms(const Linear& l, std::vector<Linear>& to, int depth) const;
  void tighten(const Linear& l);
  void recombine(Linear& l) const;
  bool prove(Linear l, const std::vector<Linear>& axioms, int depth, int& budget) const;
  std::optional<bool> compare(const Binary& n) const;

  std::vector<Entry> vars_;
  std::vector<Linear> assumed_;
  std::vector<std::pair<Expr, bool>> conditions_;  // others, known true or false
  std::vector<std::pair<Expr, Interval>>
      bounds_;  // bounds from guards on terms other than variables; all entries for a term hold
  bool never_ = false;
  std::vector<std::vector<int64_t>> dims_;  // of each parameter: the scalars among its dims
  mutable Memo memo_;
};

// The largest power of two known to divide e in every lane (0 is divisible by all: 2^62).
int64_t known_multiple(const Expr& e, const Ranges& ranges);

}  // namespace gradloom::ir
