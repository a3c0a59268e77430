// The step reverse: a loop's iterations in the opposite order.
#include "gradloom/schedule.h"
#include "ir/analysis/loop_bounds.h"
#include "ir/analysis/races.h"
#include "ir/index_math.h"
#include "ir/rewrite.h"
#include "ir/schedule/site.h"

namespace gradloom::ir {

Schedule::Loop Schedule::reverse(Loop id) {
  const Site site = find_loop(kernel_, id);
  const For& loop = *site.loop;
  require_serial("reverse", loop);
  if (const std::string conflict = loop_carried_conflict(loop, site.scope); !conflict.empty())
    refuse("reverse", loop.var.name, conflict);
  const std::string line = "reverse " + handle_name(kernel_, id);
  const Bounds bounds = read_once(loop, site.scope);
  const Var down = make_var(loop.var.name + "_r");
  const Expr last = index_add(bounds.begin, index_sub(bounds.extent, 1));
  const Stmt body = substitute(loop.body, {{id, index_sub(last, var(down))}});
  put("reverse", site, bounds.wrap(for_loop(down, 0, bounds.extent, ForKind::serial, body)), line);
  return down.id;
}

}  // namespace gradloom::ir
