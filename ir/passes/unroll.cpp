// Fully unrolls unroll loops: copies in order, one per iteration.
// Requires: constant extents. Gives: no loop of kind unroll; ids of loops, lets and allocated buffers stay unique.
// Breaks: nothing.
#include "gradloom/refusal.h"
#include "ir/index_math.h"
#include "ir/passes/passes.h"
#include "ir/rewrite.h"

namespace gradloom::ir {
namespace {

bool declares(const Stmt& s) {
  return any_of(s, [](const Stmt& x) { return x.as<For>() || x.as<Let>() || x.as<Alloc>(); });
}

struct Unroll : Rewriter {
  using Rewriter::rewrite;
  // Statements only: no expression holds a loop.
  Stmt rewrite(const Store&, const Stmt& self) override { return self; }
  Stmt rewrite(const Accumulate&, const Stmt& self) override { return self; }
  Stmt rewrite(const Evaluate&, const Stmt& self) override { return self; }

  Stmt rewrite(const For& n, const Stmt& self) override {
    if (n.kind != ForKind::unroll) return Rewriter::rewrite(n, self);
    const std::optional<int64_t> extent = as_int(n.extent);
    if (!extent)
      throw LoweringRefusal(ErrorCode::invalid_argument, "unroll: loop " + n.var.name + " has no constant extent");
    const Stmt body = (*this)(n.body);
    const bool fresh = declares(body);
    const bool read_once = has_load(n.begin);
    const Var first = make_var(n.var.name + "_b");
    const Expr begin = read_once ? var(first) : n.begin;
    std::vector<Stmt> copies;
    for (int64_t i = 0; i < *extent; ++i)
      copies.push_back(substitute(fresh && i > 0 ? refresh(body) : body, {{n.var.id, index_add(begin, i)}}));
    const Stmt all = block(std::move(copies));
    return read_once ? let(first, n.begin, all) : all;
  }
};

}  // namespace

Kernel unroll(const Kernel& kernel) { return Unroll()(kernel); }

}  // namespace gradloom::ir
