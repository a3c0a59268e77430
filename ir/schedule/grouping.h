#pragma once
// Internal to schedules: what steps share that sort a scatter's iterations by destination.
#include <functional>
#include <string>
#include <vector>

#include "ir/analysis/loop_bounds.h"
#include "ir/schedule/scatter.h"

namespace gradloom::ir {

class Grouping {
 public:
  Grouping(std::string step, const Site& site, const Buffer& buffer);

  // Whether sorting may as well stand before this statement, which is around the loop.
  bool independent_of(const Stmt& around) const;
  bool loads_or_checks() const;

 protected:
  static Expr folded(const Expr& e);
  static Expr i64(const Expr& e) { return e.dtype() == DType::i64 ? e : cast(DType::i64, e); }

  // A loop over each destination dim, and in them one over the destination's segment of the sorted iterations, at each
  // of which one iteration runs: it has the number `number(place)`, from 0.
  struct Segment {
    Expr begin, end;
  };
  struct Nest {
    std::vector<int64_t> rows;  // loops
    int64_t group = 0;
    Stmt stmt;
  };
  Nest over_destinations(const std::function<Segment(const Expr& key)>& segment,
                         const std::function<Expr(const Expr& place)>& number) const;
  // Row-major among the destination dims.
  Expr key(const std::vector<Expr>& at) const;
  // The tail, or another statement in its place, with what it needs of the head.
  Stmt update() const { return with_needed(scatter_.tail); }
  Stmt with_needed(Stmt tail) const;
  // At least the number of iterations, known before the kernel runs: what tables hold.
  Expr most_iterations(const Kernel& kernel, const Site& site) const;
  static DType counter_type(const Expr& most, const Ranges& scope);  // of counters up to `most`

  const std::string step_;
  const For& loop_;
  const Scatter scatter_;
  const Bounds bounds_;
  const Expr rows_;  // exactly as many destinations

 private:
  Expr row_count(const Ranges& scope) const;
  Expr between_declared(const Site& site) const;
};

// The kernel with the loop's iterations sorted, before the outermost loop around it that sorting does not depend on:
// `rows` in the loop's place, and what `sorted_around` makes of all that then uses the sorted iterations. `to` is what
// was put at the site.
struct Grouped {
  Site around;
  Stmt to;
  Kernel kernel;
};
Grouped grouped(const Kernel& kernel, const Site& site, const Grouping& grouping, const Stmt& rows,
                const std::function<Stmt(const Stmt& use)>& sorted_around);

}  // namespace gradloom::ir
