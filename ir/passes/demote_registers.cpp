// Demotes register buffers that are indexed by a variable, because no schedule unrolled or vectorized that loop, to the
// stack. Prefetches of buffers in registers are removed: there is no memory to fetch.
#include <algorithm>

#include "ir/analysis/verify.h"
#include "ir/passes/passes.h"
#include "ir/redirect.h"
#include "ir/rewrite.h"

namespace gradloom::ir {
namespace {

struct DropPrefetches : Rewriter {
  using Rewriter::rewrite;
  Stmt rewrite(const Evaluate& n, const Stmt& self) override {
    const Buffer& b = n.value.as<Intrinsic>()->buffer;
    return b && b->space == Space::registers ? block({}) : self;
  }
};

}  // namespace

Kernel demote_registers(const Kernel& kernel) {
  Redirections demoted;
  bool prefetched = false;  // a prefetch of a register buffer exists
  const auto look = [&](const Buffer& b, const std::vector<Expr>& index) {
    if (b->space == Space::registers && !std::all_of(index.begin(), index.end(), constant_index))
      demoted.try_emplace(b->id, Redirection{in_space(b, Space::global)});
  };
  walk(
      kernel.body,
      [&](const Stmt& s) {
        if (const Store* n = s.as<Store>()) look(n->buffer, n->index);
        if (const Accumulate* n = s.as<Accumulate>()) look(n->buffer, n->index);
      },
      [&](const Expr& e) {
        if (const Load* n = e.as<Load>()) look(n->buffer, n->index);
        if (const Intrinsic* n = e.as<Intrinsic>(); n && n->buffer) prefetched |= n->buffer->space == Space::registers;
      });
  Kernel result = kernel;
  if (prefetched) result.body = DropPrefetches()(result.body);
  if (!demoted.empty()) result.body = redirect(result.body, demoted);
  return result;
}

}  // namespace gradloom::ir
