// Removes prefetches: a GPU hides latency by running many threads. Loops that become empty are left for simplify.
// Requires: nothing. Gives: no prefetch. Breaks: nothing.
#include "ir/passes/passes.h"
#include "ir/rewrite.h"

namespace gradloom::ir {
namespace {

struct Drop : Rewriter {
  using Rewriter::rewrite;
  Stmt rewrite(const Evaluate& n, const Stmt& self) override {
    const Intrinsic* i = n.value.as<Intrinsic>();
    return i && i->op == IntrinsicOp::prefetch ? block({}) : self;
  }
};

}  // namespace

Kernel drop_prefetches(const Kernel& kernel) { return Drop()(kernel); }

}  // namespace gradloom::ir
