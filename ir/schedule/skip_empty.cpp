// The step skip_empty: a loop's body, where without an iteration of an inner loop it would change nothing.
#include "gradloom/schedule.h"
#include "ir/index_math.h"
#include "ir/rewrite.h"
#include "ir/schedule/site.h"
#include "ir/schedule/unchanging.h"
#include "ir/wrappers.h"

namespace gradloom::ir {
void Schedule::skip_empty(Loop outer_id, Loop inner_id) {
  const Site site = find_loop(kernel_, outer_id), below = find_loop(kernel_, inner_id);
  const For &outer = *site.loop, &inner = *below.loop;
  const auto fail = [&](const std::string& why) { refuse("skip_empty", outer.var.name, why); };
  if (site.path.size() >= below.path.size() || !below.path[site.path.size() - 1].same_as(site.stmt()))
    fail("loop " + inner.var.name + " is not in it");
  if (const std::string why = why_it_changes(outer.body, inner_id); !why.empty())
    fail("without an iteration of loop " + inner.var.name + " " + why);
  // The condition stands below the lets that it needs, as far as they stand at the top; the others are put into it.
  std::vector<Var> known = visible(kernel_, site, true);
  std::vector<Stmt> lets;
  Stmt rest = outer.body;
  for (const Let* l = rest.as<Let>(); l && !uses_only(inner.extent, known); l = rest.as<Let>()) {
    known.push_back(l->var);
    lets.push_back(rest);
    rest = l->body;
  }
  const std::string iterations = "how many iterations loop " + inner.var.name + " has is ";
  Expr extent = inner.extent;
  for (size_t i = below.path.size() - 1; i-- > site.path.size();)
    if (const Let* l = below.path[i].as<Let>(); l && !uses_only(extent, known))
      extent = substitute(extent, {{l->var.id, l->value}});
  if (!uses_only(extent, known)) fail(iterations + "known only further inside");
  if (may_clobber(outer.body, extent)) fail(iterations + "read from memory that it writes");
  for (size_t i = site.path.size(); i + 1 < below.path.size() && has_load(extent); ++i) {
    const For* f = below.path[i].as<For>();
    if (below.path[i].as<If>() || below.path[i].as<Check>() || (f && below.scope.of(f->extent).min.value_or(0) < 1))
      fail(iterations + "read from memory under a condition");
  }
  const std::string line = "skip_empty " + handle_name(kernel_, outer_id) + " " + handle_name(kernel_, inner_id);
  put("skip_empty", site,
      for_loop(outer.var, outer.begin, outer.extent, outer.kind, wrapped(lets, if_then(0 < extent, rest))), line);
}

}  // namespace gradloom::ir
