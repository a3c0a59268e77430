#include "ir/schedule/reduction_nest_site.h"

#include <algorithm>

#include "ir/analysis/races.h"
#include "ir/reduction.h"
#include "ir/rewrite.h"

namespace gradloom::ir {
namespace {

bool reads(const Expr& e) {
  return any_of(e, [](const Expr& x) { return x.as<Load>() || x.as<Intrinsic>(); });
}

// The path down to the scope of the total, or else to the reduction.
void end_at_scope(Site& site) {
  for (size_t i = site.path.size() - 1; i-- > 0;) {
    const Alloc* a = site.path[i].as<Alloc>();
    if (a && a->buffer->id == site.reduction->buffer->id) return site.path.resize(i + 1);
    if (!site.path[i].as<Block>()) return;
  }
}

}  // namespace

ReductionNestSite::ReductionNestSite(const char* step, const Kernel& kernel, const Site& own, int64_t around)
    : site(around ? find_loop(kernel, around) : own), step_(step), name_(own.name()) {
  if (!around) end_at_scope(site);
  if (!any_of(site.stmt(), [&](const Stmt& s) { return s.as<Reduce>() == own.reduction; }))
    wrong_argument(step, name_, "loop " + site.name() + " does not hold it");
  collect(site.stmt());
  const auto varies = [&](const Expr& e) {
    const auto is = [&](const Var& v) { return mentions(e, v.id); };
    return reads(e) || std::any_of(loops.begin(), loops.end(), [&](const For* f) { return is(f->var); }) ||
           std::any_of(lets.begin(), lets.end(), [&](const Reduce::Definition& d) { return is(d.var); }) ||
           std::any_of(reduction->ranges.begin(), reduction->ranges.end(),
                       [&](const Reduce::Range& r) { return is(r.var); });
  };
  for (const Reduce::Range& r : reduction->ranges)
    if (varies(r.begin) || varies(r.extent))
      refuse_it("the bounds of its variable " + r.var.name + " are not known before the nest");
  for (const For* f : loops) {
    if (varies(f->begin) || varies(f->extent))
      refuse_it("the bounds of loop " + f->var.name + " are not known before the nest");
    const std::string conflict = loop_carried_conflict(*f, find_loop(kernel, f->var.id).scope);
    if (!conflict.empty()) refuse_it(conflict);
  }
  for (const Reduce::Definition& d : lets)
    if (may_clobber(site.stmt(), d.value)) refuse_it("the let " + d.var.name + " reads memory that the nest writes");
}

void ReductionNestSite::refuse_it(const std::string& why) const { refuse(step_, name_, why); }

void ReductionNestSite::collect(const Stmt& s) {
  if (const Block* n = s.as<Block>()) {
    const auto at = std::find_if(n->stmts.begin(), n->stmts.end(), [](const Stmt& x) { return holds_reduction(x); });
    if (at != n->stmts.begin()) refuse_it("statements come before it");
    collect(*at);
    for (auto rest = at + 1; rest != n->stmts.end(); ++rest) {
      if (holds_reduction(*rest)) refuse_it("another reduction is in the same body");
      after.push_back(*rest);
    }
  } else if (const For* n = s.as<For>()) {
    if (!own.empty()) refuse_it("the loops around it are not perfectly nested");
    require_serial(step_, *n);
    loops.push_back(n);
    collect(n->body);
    loop_left_ = true;
  } else if (const Let* n = s.as<Let>()) {
    lets.push_back({n->var, n->value});
    collect(n->body);
  } else if (const Alloc* n = s.as<Alloc>()) {
    own.push_back(n->buffer);
    collect(n->body);
  } else if (const Reduce* n = s.as<Reduce>()) {
    reduction = n;
  } else {
    refuse_it("it is inside another statement");
  }
  if (loop_left_ && !s.as<For>() && !s.as<Let>()) refuse_it("the loops around it are not perfectly nested");
}

Reduce ReductionNestSite::with_lets() const { return with_outer_lets(*reduction, lets); }

std::function<bool(const Expr&)> ReductionNestSite::nonnegative() const {
  return [this](const Expr& extent) { return site.scope.of(extent).min.value_or(-1) >= 0; };
}

}  // namespace gradloom::ir
