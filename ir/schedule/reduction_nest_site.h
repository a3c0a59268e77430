#pragma once
// Internal to schedules: a reduction with the loops around it, which a step takes apart together.
#include <functional>
#include <vector>

#include "ir/schedule/site.h"

namespace gradloom::ir {

// Of the reduction `own`: the perfect nest from loop `around` down to it; without a loop the scope of its total, or it
// alone. Refused unless the loops' iterations are independent, and unless all bounds are known before the nest.
struct ReductionNestSite {
  ReductionNestSite(const char* step, const Kernel& kernel, const Site& own, int64_t around);

  Site site;  // of what is to be replaced
  std::vector<const For*> loops;
  std::vector<Reduce::Definition> lets;
  std::vector<Buffer> own;  // allocated in the body
  std::vector<Stmt> after;  // what the body does with the total
  const Reduce* reduction = nullptr;

  // The reduction with the lets around it as its own.
  Reduce with_lets() const;
  // Whether an extent is proved not to be negative, before the nest.
  std::function<bool(const Expr&)> nonnegative() const;

 private:
  void collect(const Stmt& s);
  [[noreturn]] void refuse_it(const std::string& why) const;

  const char* step_;
  const std::string& name_;
  bool loop_left_ = false;
};

}  // namespace gradloom::ir
