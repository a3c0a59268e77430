// Steps on the order of a reduction: another one declared, a fold in chunks as two reductions.
#include "gradloom/schedule.h"
#include "ir/index_math.h"
#include "ir/reduction.h"
#include "ir/rewrite.h"
#include "ir/schedule/reduction_nest_site.h"

namespace gradloom::ir {
namespace {

// The statement with one reduction replaced.
struct Replaced : Rewriter {
  Replaced(const Reduce* from, Stmt to) : from_(from), to_(std::move(to)) {}
  using Rewriter::rewrite;
  Stmt rewrite(const Reduce& n, const Stmt& self) override { return &n == from_ ? to_ : self; }

 private:
  const Reduce* const from_;
  const Stmt to_;
};

}  // namespace

void Schedule::reassociate(Loop id, SumOrder order) {
  const char* step = "reassociate";
  const Site site = find_reduction(kernel_, id);
  Reduce n = *site.reduction;
  const bool rounded = rounds(n.op) && is_float(n.buffer->dtype);
  if (rounded && level_ == Determinism::sequential)
    refuse(step, site.name(),
           "it would change the order in which " + folds(n.op) + " of " + std::string(to_string(n.buffer->dtype)) +
               " are rounded; the kernel's level is " + level_name(level_));
  n.order = order;
  const std::string line = std::string(step) + " " + reduction_name(kernel_, id) + " " + to_string(order);
  put(step, site, reduce(std::move(n)), line);
}

Schedule::Chunks Schedule::split_chunks(Loop id, Loop around) {
  const char* step = "split_chunks";
  const Site own = find_reduction(kernel_, id);
  if (own.reduction->order.kind != SumOrder::chunks) refuse(step, own.name(), "its order is not in chunks");
  const std::string line =
      std::string(step) + " " + reduction_name(kernel_, id) + (around ? " " + handle_name(kernel_, around) : "");
  const ReductionNestSite nest(step, kernel_, own, around);
  const Reduce& whole = *nest.reduction;
  const Reduce::Range& outermost = whole.ranges[0];
  const int64_t length = whole.order.block;
  const auto known = nest.nonnegative();
  const auto not_negative = [&](const Expr& n) { return known(n) ? n : index_max(n, 0); };
  const Expr n = not_negative(outermost.extent), count = floor_div(n + (length - 1), length);
  const Var chunk = make_var("chunk"), term = make_var("add");

  // partial[chunk, p - begin, ...]: a chunk's fold for each iteration of the loops, first in a register.
  std::vector<Expr> dims{count}, place;
  for (const For* f : nest.loops) {
    dims.push_back(not_negative(f->extent));
    place.push_back(index_sub(var(f->var), f->begin));
  }
  const auto at = [&](const Var& which) {
    std::vector<Expr> index{var(which)};
    index.insert(index.end(), place.begin(), place.end());
    return index;
  };
  const Buffer partial =
      make_buffer({.name = "partial", .dtype = whole.buffer->dtype, .dims = dims, .role = Role::temp});
  const Buffer acc = make_buffer(
      {.name = "acc", .dtype = whole.buffer->dtype, .dims = {1}, .role = Role::temp, .space = Space::registers});
  Reduce each = nest.with_lets();
  each.buffer = acc, each.index = {0}, each.order = SumOrder::in_loops();
  each.ranges[0].begin = index_add(outermost.begin, var(chunk) * length);
  each.ranges[0].extent = min(Expr(length), n - var(chunk) * length);
  Stmt first = alloc(acc, block({reduce(std::move(each)), store(partial, at(chunk), load(acc, {0}))}));
  for (size_t i = nest.loops.size(); i-- > 0;) {
    const For& f = *nest.loops[i];
    first = for_loop(f.var, f.begin, f.extent, ForKind::serial, std::move(first));
  }
  first = refresh(for_loop(chunk, 0, count, ForKind::serial, std::move(first)));
  const For& chunks = *first.as<For>();

  Reduce total = whole;
  total.ranges = {{term, 0, count}};
  total.op = whole.op == AccumulateOp::fma ? AccumulateOp::add : whole.op;
  total.order = SumOrder::in_loops();
  total.lets.clear();
  total.value = load(partial, at(term));
  total.factor = total.guard = Expr();
  const Stmt second = Replaced(&whole, reduce(std::move(total)))(nest.site.stmt());
  const Chunks made{chunks.var.id, reductions_below(first)[0]->ranges[0].var.id, term.id};
  put(step, nest.site, alloc(partial, block({first, second})), line);
  return made;
}

}  // namespace gradloom::ir
