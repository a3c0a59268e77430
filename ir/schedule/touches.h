#pragma once
// Internal to schedules: the cache lines that a loop's accesses of a buffer will touch, and the loops that prefetch
// them.
#include <cstdint>
#include <vector>

#include "ir/rewrite.h"

namespace gradloom::ir {

// The addresses that one access will touch, with the loops between the scheduled loop and the access.
struct Touch {
  std::vector<Expr> index;          // lets expanded
  std::vector<const For*> inner;    // outermost first: loops used by the index, or by the bounds of such a loop
  std::vector<const For*> skipped;  // the other loops: they may run no iteration
  bool conditional_load = false;    // an index, or a bound of these loops, is loaded under an If or a Check
};

// Collects the accesses below a loop; as a rewriter it is the identity.
class Touches : public Rewriter {
 public:
  // `stores`: those of stores, too.
  Touches(const Buffer& b, bool stores) : target_(b), stores_(stores) {}
  void enter(const Let& n);  // one around the loop
  Expr expand(const Expr& e) const { return substitute(e, lets_); }
  const std::vector<Touch>& all() const { return touches_; }

 protected:
  using Rewriter::rewrite;
  Expr rewrite(const Load& n, const Expr& self) override;
  Stmt rewrite(const Accumulate& n, const Stmt& self) override;
  Stmt rewrite(const Store& n, const Stmt& self) override;
  Stmt rewrite(const For& n, const Stmt& self) override;
  Stmt rewrite(const Let& n, const Stmt& self) override;
  Stmt rewrite(const If& n, const Stmt& self) override;
  Stmt rewrite(const Check& n, const Stmt& self) override;

 private:
  bool loaded_under_condition(const Expr& e) const;
  void add(const Buffer& b, const std::vector<Expr>& index);

  const Buffer target_;
  const bool stores_;
  int conditions_ = 0;
  std::vector<const For*> loops_;
  Substitution lets_;
  std::vector<int64_t> conditional_lets_;
  std::vector<Touch> touches_;
};
// Of the loads below the loop and what it accumulates into; where there are none, of its stores.
Touches touches_of(const Stmt& body, const Buffer& buffer, const std::vector<const Let*>& around = {});

// The prefetches of an access, with the variables `moved` to other values, a line at a time. `guard`: a condition of
// what they load; absent where they stand under it.
Stmt prefetch_nest(const Buffer& buffer, const Touch& touch, const Substitution& moved, const Expr& guard,
                   const Touches& context, int level);

}  // namespace gradloom::ir
