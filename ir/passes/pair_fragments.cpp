// Rewrites a pair of fragment loops into one over rows and one over pairs of adjacent columns, its body in vectors of
// two: a lane's elements of a tile come in such pairs, and one access can move both. Products are unchanged, as is
// anything that does not fit, for the verifier to report.
// Requires: the form of verify_gpu.h, no vector loop. Gives: fragment loops over pairs. Breaks: nothing.
#include "ir/analysis/fragment_product.h"
#include "ir/index_math.h"
#include "ir/passes/passes.h"
#include "ir/rewrite.h"

namespace gradloom::ir {
namespace {

struct Pairs : Rewriter {
  using Rewriter::rewrite;
  Stmt rewrite(const For& rows, const Stmt& self) override {
    if (rows.kind != ForKind::fragment) return Rewriter::rewrite(rows, self);
    std::string mismatch;
    if (match_fragment_product(rows, mismatch).sums || !fits(rows.body.as<For>())) return self;
    const For* columns = rows.body.as<For>();
    const Var pair = make_var(columns->var.name);
    const Stmt both = for_loop(columns->var, index_mul(var(pair), 2), 2, ForKind::vector, columns->body);
    const Stmt pairs = for_loop(pair, 0, *as_int(columns->extent) / 2, ForKind::fragment, both);
    return for_loop(rows.var, rows.begin, rows.extent, rows.kind, pairs);
  }
  static bool fits(const For* columns) {
    if (!columns || columns->kind != ForKind::fragment || !is_const(columns->begin, 0) ||
        as_int(columns->extent).value_or(1) % unit_columns != 0)
      return false;
    bool scalar = true;
    walk(
        columns->body, [&](const Stmt& s) { scalar &= !s.as<For>(); },
        [&](const Expr& e) { scalar &= e.lanes() == 1; });
    return scalar;
  }
};

}  // namespace

Kernel pair_fragments(const Kernel& kernel) { return vectorize(Pairs()(kernel)); }

}  // namespace gradloom::ir
