// Steps that give memory hints and change no value: streaming stores and prefetches.
#include <algorithm>

#include "gradloom/schedule.h"
#include "gradloom/target.h"
#include "gradloom/text.h"
#include "ir/index_math.h"
#include "ir/rewrite.h"
#include "ir/schedule/site.h"
#include "ir/schedule/touches.h"

namespace gradloom::ir {
namespace {

struct MarkStreaming : Rewriter {
  explicit MarkStreaming(const Buffer& b) : target(b) {}
  using Rewriter::rewrite;
  Stmt rewrite(const Store& n, const Stmt& self) override {
    if (!n.buffer.same_as(target)) return self;
    found = true;
    return n.streaming ? self : store(n.buffer, n.index, n.value, n.guard, true);
  }
  const Buffer& target;
  bool found = false;
};

// The buffer of a load in the prefetch that is not proved within its dims; absent: none.
Buffer unproved_load(const Stmt& prefetches, const Ranges& known) {
  Buffer unproved;
  walk(prefetches, {}, [&](const Expr& e) {
    const Load* l = e.as<Load>();
    for (size_t d = 0; l && d < l->index.size(); ++d)
      if (known.proves((0 <= l->index[d]) & (l->index[d] < l->buffer->dims[d])) != true) unproved = l->buffer;
  });
  return unproved;
}

// Whether a load of the prefetch reads memory that the body writes, possibly later.
bool loads_written(const Stmt& prefetches, const Stmt& body) {
  return any_of(prefetches, [&](const Expr& e) { return e.as<Load>() && may_clobber(body, e); });
}

}  // namespace

void Schedule::streaming(const Buffer& buffer) {
  MarkStreaming mark(buffer);
  const Kernel marked = mark(kernel_);
  const std::string name = handle_name(kernel_, buffer);
  if (!mark.found) throw ScheduleRefusal("streaming of buffer " + buffer->name + ": nothing stores to it");
  kernel_ = marked;
  trace_.push_back("streaming " + name);
}

void Schedule::prefetch(Loop id, const Buffer& buffer, int64_t distance, int level, Expr until) {
  const Site site = find_loop(kernel_, id);
  const For& loop = *site.loop;
  require_expanded("prefetch", loop);
  if (distance < 1)
    wrong_argument("prefetch", loop.var.name, "the distance must be at least 1, got " + std::to_string(distance));
  if (level < 1 || level > 3)
    wrong_argument("prefetch", loop.var.name, "the level must be 1 to 3, got " + std::to_string(level));
  const std::vector<Var> vars = visible(kernel_, site, false);
  if (until && (until.type() != Type{} || !uses_only(until, vars)))
    wrong_argument("prefetch", loop.var.name, "its end uses what is not known outside the loop");
  const std::string line = "prefetch " + handle_name(kernel_, id) + " " + handle_name(kernel_, buffer) + " " +
                           std::to_string(distance) + " " + std::to_string(level) +
                           (until ? " " + write_expr(until, vars) : "");
  require_outside("prefetch", loop, buffer);
  const Touches touches = touches_of(loop.body, buffer);
  if (touches.all().empty()) refuse("prefetch", loop.var.name, "nothing in it touches buffer " + buffer->name);

  const Expr end = index_add(loop.begin, loop.extent);
  const Expr later = index_add(var(loop.var), distance);
  // Compares relative to the loop's begin where the variable plus the distance may overflow an i64.
  const bool fits = site.scope.sum_fits(loop.begin, loop.extent) && site.scope.sum_fits(end, distance);
  if (until && !fits) refuse("prefetch", loop.var.name, "one number is not proved to count its iterations further on");
  const Expr exists = until  ? later < until
                      : fits ? later < end
                             : index_sub(var(loop.var), loop.begin) < index_sub(loop.extent, distance);
  const Ranges inside = site.inside();
  const auto may_be_empty = [&](const For* f) { return inside.of(f->extent).min.value_or(0) < 1; };
  std::vector<Stmt> stmts;
  bool reads = false;
  for (const Touch& t : touches.all()) {
    bool loads = t.conditional_load;
    for (const Expr& i : t.index) loads |= has_load(i);
    for (const For* f : t.inner) loads |= has_load(touches.expand(f->begin)) || has_load(touches.expand(f->extent));
    if (t.conditional_load)
      refuse("prefetch", loop.var.name, "an index of " + buffer->name + " is loaded under a condition");
    if (loads && (has_load(loop.begin) || has_load(loop.extent)))
      refuse("prefetch", loop.var.name, "its bounds and an index of " + buffer->name + " are both read from memory");
    if (loads && std::any_of(t.skipped.begin(), t.skipped.end(), may_be_empty))
      refuse("prefetch", loop.var.name,
             "an index of " + buffer->name + " is loaded in a loop that may run no iteration");
    reads |= loads;
    stmts.push_back(prefetch_nest(buffer, t, {{id, later}}, until ? Expr() : exists, touches, level));
    if (loads && loads_written(stmts.back(), loop.body))
      refuse("prefetch", loop.var.name, "it writes what an index of " + buffer->name + " is loaded from");
  }
  const Stmt added = block(stmts);
  if (until) {
    Ranges there = inside;
    there.assume(exists);
    if (const Buffer b = unproved_load(added, there))
      refuse("prefetch", loop.var.name,
             "an iteration up to " + print(until) + " is not proved to read within buffer " + b->name);
  }
  const Stmt hint = until ? if_then((var(loop.var) == index_sub(end, 1)) & exists, added) : added;
  const Stmt to = for_loop(loop.var, loop.begin, loop.extent, loop.kind, block({hint, loop.body}));
  Kernel changed = replace(kernel_, site, to);
  const auto widened = [](const Stmt& s) { return s.as<For>() && in_lanes(s.as<For>()->kind); };
  // A nest of prefetches alone accesses no memory.
  if (reads || has_variable_divisor(added) || std::any_of(site.path.begin(), site.path.end(), widened))
    require_proved("prefetch", site, kernel_, changed, to);
  kernel_ = std::move(changed);
  trace_.push_back(line);
}

}  // namespace gradloom::ir
