#pragma once
// Internal to schedules: a loop around one accumulate whose destination its iterations choose.
#include <functional>
#include <vector>

#include "ir/schedule/site.h"

namespace gradloom::ir {

// for k { head { tail { d[.., j, ..] op= v } } }, where the head, lets, checks and conditions, says what j is and
// whether it is, and depends on no loop in the tail.
struct Scatter {
  std::vector<Stmt> head;  // outermost first
  Stmt tail;               // what is left around the accumulate, and that
  struct Dim {
    size_t dim;  // of the buffer
    Var at;      // j: a let of the head, proved in [0, extent)
    Expr extent;
  };
  std::vector<Dim> destination;  // at least one

  // The head, with fresh lets, around what `body` makes of the destination there.
  Stmt around(const std::function<Stmt(const std::vector<Expr>& destination)>& body) const;
  bool head_loads_or_checks() const;  // so that it must not be evaluated where it was not
};

// The loop of the site as a scatter into the buffer; refused where it is none.
Scatter scatter_of(const std::string& step, const Site& site, const Buffer& buffer);

}  // namespace gradloom::ir
