// The step prefetch_across: prefetches in a loop what it, and the next iteration of a loop around it, touch later.
#include <algorithm>

#include "gradloom/schedule.h"
#include "ir/index_math.h"
#include "ir/rewrite.h"
#include "ir/schedule/site.h"
#include "ir/schedule/touches.h"

namespace gradloom::ir {
namespace {

constexpr const char* step = "prefetch_across";

}  // namespace

// Legal because no address is loaded: prefetches change nothing, wherever they point.
void Schedule::prefetch_across(Loop outer_id, Loop id, const Buffer& buffer, int64_t distance, int level) {
  const Site site = find_loop(kernel_, id);
  const For &loop = *site.loop, &outer = get_loop(kernel_, outer_id);
  const std::string& name = loop.var.name;
  require_expanded(step, loop);
  if (distance < 1) wrong_argument(step, name, "the distance must be at least 1, got " + std::to_string(distance));
  if (level < 1 || level > 3) wrong_argument(step, name, "the level must be 1 to 3, got " + std::to_string(level));
  const auto around = std::find_if(site.path.begin(), site.path.end() - 1,
                                   [&](const Stmt& s) { return s.as<For>() && s.as<For>()->var.id == outer_id; });
  if (around == site.path.end() - 1) refuse(step, name, "loop " + outer.var.name + " is not around it");
  std::vector<const Let*> lets;
  for (auto s = around + 1; s != site.path.end() - 1; ++s) {
    if (const For* between = s->as<For>())
      refuse(step, name, "loop " + between->var.name + " is between it and loop " + outer.var.name);
    if (const Let* l = s->as<Let>()) lets.push_back(l);
  }
  const Linear begin = linear(loop.begin), extent = linear(loop.extent);
  if (!begin.exact || !begin.terms.empty() || !extent.exact || !extent.terms.empty())
    refuse(step, name, "its bounds are not constants");
  if (extent.constant < distance)
    refuse(step, name, "it has " + std::to_string(extent.constant) + " iterations, fewer than the distance");
  const std::string line = std::string(step) + " " + handle_name(kernel_, outer_id) + " " + handle_name(kernel_, id) +
                           " " + handle_name(kernel_, buffer) + " " + std::to_string(distance) + " " +
                           std::to_string(level);
  require_outside(step, outer, buffer);
  const Touches touches = touches_of(loop.body, buffer, lets);
  if (touches.all().empty()) refuse(step, name, "nothing in it touches buffer " + buffer->name);
  for (const Touch& t : touches.all()) {
    bool loads = std::any_of(t.index.begin(), t.index.end(), has_load);
    for (const For* f : t.inner) loads |= has_load(touches.expand(f->begin)) || has_load(touches.expand(f->extent));
    if (loads) refuse(step, name, "an index of " + buffer->name + " is loaded");
  }

  // An iteration that exists in this one of the outer loop, or else the rest of the way in the next.
  const int64_t past = extent.constant - distance;
  const Expr here = index_sub(var(loop.var), loop.begin) < past;
  const Var later = make_var(name + "_n"), next = make_var(outer.var.name + "_n");
  std::vector<Stmt> stmts;
  for (const Touch& t : touches.all())
    stmts.push_back(prefetch_nest(buffer, t, {{id, var(later)}, {outer_id, var(next)}}, {}, touches, level));
  Stmt added = block(std::move(stmts));
  added = let(next, select(here, var(outer.var), var(outer.var) + 1), added);
  added = let(later, select(here, var(loop.var) + distance, var(loop.var) - past), added);
  const Stmt to = for_loop(loop.var, loop.begin, loop.extent, loop.kind, block({added, loop.body}));
  put(step, site, to, line);
}

}  // namespace gradloom::ir
