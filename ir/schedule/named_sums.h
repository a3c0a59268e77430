#pragma once
// Internal to schedules: sums in a buffer of their own, of which only those that something is added to need be there.
#include <string>
#include <vector>

#include "ir/schedule/scatter.h"

namespace gradloom::ir {

// alloc sums { for z { sums[z] = constant } for k { sums[j(k)] += v } for i { store what sums[i] makes of memory } }
// where the store changes nothing of what the constant stands in for. Refused as `step` of loop k otherwise.
class NamedSums {
 public:
  NamedSums(const std::string& step, const Kernel& kernel, const Site& site, const Buffer& sums,
            const std::vector<Scatter::Dim>& destination);

  Site around() const;  // of the whole: its alloc
  // The sums of one destination, in memory of their own: filled, summed by `update`, which accumulates into the buffer,
  // and stored.
  Stmt of(const std::vector<Expr>& destination, const Stmt& update) const;
  const Store* stored() const { return stored_; }  // the first store of them to an inout, if any
  std::vector<Var> stored_at() const;              // the variables of the destination dims there

 private:
  struct Nest {
    std::vector<const For*> loops;  // outermost first
    Stmt inner;
  };
  static Nest nest_of(Stmt s);
  // For each destination dim the nest's loop over it.
  std::vector<const For*> over_destinations(const Nest& nest, const std::vector<Expr>& index) const;
  Stmt without(const std::vector<const For*>& left_out, const Nest& nest) const;
  [[noreturn]] void fail(const std::string& why) const { refuse(step_, site_.loop->var.name, why); }
  void take_fill(const Stmt& s);
  void take_store(const Kernel& kernel, const Stmt& s);

  const std::string step_;
  const Site site_;
  const Buffer sums_;
  const std::vector<Scatter::Dim> destination_;
  size_t declared_ = 0;  // the alloc's place in the site's path
  Nest fill_, store_;
  std::vector<const For*> filled_, written_;  // over_destinations of both
  Expr constant_;
  const Store* stored_ = nullptr;
};

}  // namespace gradloom::ir
