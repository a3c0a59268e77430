// The step split_parts: a range cut into a number of parts, rather than by a length.
#include "gradloom/schedule.h"
#include "ir/analysis/loop_bounds.h"
#include "ir/index_math.h"
#include "ir/rewrite.h"
#include "ir/schedule/site.h"

namespace gradloom::ir {

Schedule::Split Schedule::split_parts(Loop id, int64_t parts) {
  const char* step = "split_parts";
  const Site site = find_loop(kernel_, id);
  const For& loop = *site.loop;
  const std::string& name = loop.var.name;
  require_serial(step, loop);
  if (parts < 1 || parts > 1024)
    wrong_argument(step, name, "a loop is cut into 1 to 1024 parts, got " + std::to_string(parts));
  const std::string line = std::string(step) + " " + handle_name(kernel_, id) + " " + std::to_string(parts);
  const Bounds bounds = read_once(loop, site.scope);
  const Var part = make_var(name + "_p"), inner = make_var(name + "_i"), length = make_var(name + "_l"),
            start = make_var(name + "_s");
  if (parts == 1) {
    const Stmt all =
        for_loop(inner, bounds.begin, bounds.extent, ForKind::serial, substitute(loop.body, {{id, var(inner)}}));
    put(step, site, bounds.wrap(for_loop(part, 0, 1, ForKind::serial, all)), line);
    return {part.id, inner.id, 0};
  }
  const Stmt one =
      for_loop(inner, index_add(bounds.begin, var(start)), index_min(var(length), index_sub(bounds.extent, var(start))),
               ForKind::serial, substitute(loop.body, {{id, var(inner)}}));
  const Stmt each =
      for_loop(part, 0, parts, ForKind::serial, let(start, index_min(var(part) * var(length), bounds.extent), one));
  put(step, site, bounds.wrap(let(length, ceil_div(bounds.extent, parts, site.scope), each)), line);
  return {part.id, inner.id, 0};
}

}  // namespace gradloom::ir
