// Makes loops of the reductions that the schedule left as they are.
// Requires: nothing. Gives: no reduction. Breaks: nothing.
#include "ir/expand_reduction.h"
#include "ir/passes/passes.h"
#include "ir/rewrite.h"

namespace gradloom::ir {
namespace {

struct Expand : Rewriter {
  using Rewriter::rewrite;
  Stmt rewrite(const Reduce& n, const Stmt&) override {
    ReductionLoops loops;
    return expanded(n, {}, loops);
  }
};

}  // namespace

Kernel expand_reductions(const Kernel& kernel) { return holds_reduction(kernel.body) ? Expand()(kernel) : kernel; }

}  // namespace gradloom::ir
