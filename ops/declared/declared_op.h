#pragma once
// The two ops of a declaration: each op's file makes them once.
//
//   const DeclaredOps& relu() {
//     static constinit Lasting<const DeclaredOps> ops;
//     return ops.get([] { return DeclaredOps({.name = "Relu", ...}); });
//   }
#include "ops/declared/declared_nest.h"
#include "ops/declared/declared_plan.h"
#include "support/lasting.h"

namespace gradloom {

class DeclaredOps {
 public:
  explicit DeclaredOps(Declaration declaration);
  DeclaredOps(const DeclaredOps&) = delete;
  DeclaredOps& operator=(const DeclaredOps&) = delete;
  const Declaration& declaration() const { return declaration_; }
  const Op& forward() const { return *forward_; }
  const Op& gradient() const { return *gradient_; }

 private:
  const Declaration declaration_;
  const std::unique_ptr<const Op> forward_, gradient_;
};

}  // namespace gradloom
