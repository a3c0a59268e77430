// Steps on a scatter that leave its loop in one piece: owner, atomic.
#include "gradloom/schedule.h"
#include "ir/analysis/loop_bounds.h"
#include "ir/index_math.h"
#include "ir/reduction.h"
#include "ir/rewrite.h"
#include "ir/schedule/scatter.h"
#include "ir/wrappers.h"

namespace gradloom::ir {

Schedule::Loop Schedule::owner(Loop id, const Buffer& buffer, int64_t size) {
  const Site site = find_loop(kernel_, id);
  const For& loop = *site.loop;
  if (size < 1)
    wrong_argument("owner", loop.var.name, "a range has at least 1 destination, got " + std::to_string(size));
  const std::string line =
      "owner " + handle_name(kernel_, id) + " " + handle_name(kernel_, buffer) + " " + std::to_string(size);
  const Scatter scatter = scatter_of("owner", site, buffer);
  const Bounds bounds = read_once(loop, site.scope);
  const Var owner = make_var(loop.var.name + "_o");
  const Scatter::Dim& destination = scatter.destination[0];
  const Expr first = index_mul(var(owner), size), at = var(destination.at);
  const Stmt own = if_then((first <= at) & (at < index_add(first, size)), scatter.tail);
  // At least one range, so that checks are made.
  const Expr ranges = index_max(ceil_div(destination.extent, size, site.scope), 1);
  const Stmt each = for_loop(loop.var, bounds.begin, bounds.extent, loop.kind, wrapped(scatter.head, own));
  put("owner", site, bounds.wrap(for_loop(owner, 0, ranges, ForKind::serial, each)), line);
  return owner.id;
}

void Schedule::atomic(Loop id, const Buffer& buffer) {
  const Site site = find_loop(kernel_, id);
  const For& loop = *site.loop;
  require_outside("atomic", loop, buffer);
  const std::string line = "atomic " + handle_name(kernel_, id) + " " + handle_name(kernel_, buffer);
  struct Mark : Rewriter {
    explicit Mark(const Buffer& b) : target(b) {}
    using Rewriter::rewrite;
    Stmt rewrite(const Accumulate& n, const Stmt& self) override {
      if (!n.buffer.same_as(target)) return self;
      op = n.op, found = true;
      return accumulate(n.buffer, n.index, n.op, n.value, n.factor, n.guard, true, n.ordered);
    }
    const Buffer& target;
    AccumulateOp op = AccumulateOp::add;
    bool found = false;
  } mark(buffer);
  const Stmt body = mark(loop.body);
  for (const BufferAccess& a : accesses(loop.body, buffer)) {
    const Accumulate* acc = a.stmt.as<Accumulate>();
    if (!a.writes || !acc || !acc->buffer.same_as(buffer) || acc->op != mark.op)
      refuse("atomic", loop.var.name, "buffer " + buffer->name + " is not only accumulated into, by one operation");
  }
  if (!mark.found) refuse("atomic", loop.var.name, "nothing in it accumulates into buffer " + buffer->name);
  const bool in_order = is_float(buffer->dtype) && rounds(mark.op);
  if (in_order && level_ != Determinism::relaxed)
    refuse("atomic", loop.var.name,
           "it would let " + folds(mark.op) + " of " + to_string(buffer->dtype) +
               " be rounded in any order; the kernel's level is " + level_name(level_));
  put("atomic", site, for_loop(loop.var, loop.begin, loop.extent, loop.kind, body), line);
}

}  // namespace gradloom::ir
