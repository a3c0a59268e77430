#include "ir/schedule/grouping.h"

#include <algorithm>
#include <limits>

#include "ir/index_math.h"
#include "ir/rewrite.h"
#include "ir/wrappers.h"

namespace gradloom::ir {
namespace {

// The outermost loop around the site that sorting does not depend on; the site's own where there is none.
int64_t sort_before(const Kernel& kernel, const Site& site, const Grouping& grouping) {
  int64_t before = site.loop->var.id;
  for (size_t i = site.path.size() - 1; i-- > 0;) {
    const Stmt& s = site.path[i];
    if (s.as<If>() || s.as<Check>() || !grouping.independent_of(s)) break;
    const For* f = s.as<For>();
    if (!f) continue;
    if (f->kind != ForKind::serial && f->kind != ForKind::parallel) break;
    // What is loaded or checked would be so even if the loop ran no iteration.
    if (grouping.loads_or_checks() && find_loop(kernel, f->var.id).scope.of(f->extent).min.value_or(0) < 1) break;
    before = f->var.id;
  }
  return before;
}

}  // namespace

Grouping::Grouping(std::string step, const Site& site, const Buffer& buffer)
    : step_(std::move(step)),
      loop_(*site.loop),
      scatter_(scatter_of(step_, site, buffer)),
      bounds_(read_once(loop_, site.scope)),
      rows_(row_count(site.scope)) {}

Grouping::Nest Grouping::over_destinations(const std::function<Segment(const Expr&)>& segment,
                                           const std::function<Expr(const Expr&)>& number) const {
  const std::string& name = loop_.var.name;
  std::vector<Var> vars;
  std::vector<Expr> at;
  Substitution known;
  for (const Scatter::Dim& d : scatter_.destination) {
    vars.push_back(make_var(name + "_r"));
    at.push_back(var(vars.back()));
    known[d.at.id] = at.back();
  }
  const Var k = make_var(name), g = make_var(name + "_g"), begin = make_var(name + "_b"), end = make_var(name + "_e");
  known[loop_.var.id] = var(k);
  const Stmt one = let(k, index_add(bounds_.begin, number(var(g))), substitute(update(), known));
  const Segment own = segment(key(at));
  Nest nest{.group = g.id, .stmt = for_loop(g, var(begin), var(end) - var(begin), ForKind::serial, one)};
  nest.stmt = let(begin, own.begin, let(end, own.end, nest.stmt));
  for (size_t d = vars.size(); d-- > 0;)
    nest.stmt = for_loop(vars[d], 0, scatter_.destination[d].extent, ForKind::serial, nest.stmt);
  for (const Var& v : vars) nest.rows.push_back(v.id);
  return nest;
}

bool Grouping::independent_of(const Stmt& around) const {
  bool free = true;
  const auto look = [&](const Expr& e) {
    walk(e, [&](const Expr& x) {
      const Var* v = x.as<Var>();
      const Let* l = around.as<Let>();
      const For* f = around.as<For>();
      free &= !v || ((!l || l->var.id != v->id) && (!f || f->var.id != v->id));
      const Load* from = x.as<Load>();
      if (!from) return;
      const Alloc* a = around.as<Alloc>();
      free &= !(a && a->buffer.same_as(from->buffer)) && !writes(around, from->buffer);
    });
  };
  for (const Stmt& s : scatter_.head)
    for (const Expr& e : own_exprs(s)) look(e);
  for (const Expr& e : {loop_.begin, loop_.extent, rows_}) look(e);
  return free;
}

bool Grouping::loads_or_checks() const {
  return scatter_.head_loads_or_checks() || has_load(loop_.begin) || has_load(loop_.extent);
}

Expr Grouping::folded(const Expr& e) {
  const Linear l = linear(e);
  return l.exact && l.terms.empty() ? Expr(l.constant) : e;
}

Expr Grouping::row_count(const Ranges& scope) const {
  Expr rows = 1;
  for (const Scatter::Dim& d : scatter_.destination) {
    const std::optional<int64_t> a = as_int(rows), b = as_int(d.extent);
    if (int64_t all = 0; a && b && __builtin_mul_overflow(*a, *b, &all))
      refuse(step_, loop_.var.name, "one number cannot count its destinations");
    rows = index_mul(rows, d.extent);
  }
  if (!as_int(rows) && !scope.sum_fits(rows, 2))
    refuse(step_, loop_.var.name, "one number is not proved to count its destinations");
  return rows;
}

Expr Grouping::most_iterations(const Kernel& kernel, const Site& site) const {
  std::vector<Var> scalars;
  for (const Scalar& s : kernel.scalars) scalars.push_back(s.var);
  const Expr n = folded(bounds_.extent);
  if (uses_only(n, scalars)) return n;
  if (const Expr between = between_declared(site); between && !as_int(between) && uses_only(between, scalars))
    return nonnegative(between, site.scope);
  const std::optional<int64_t> most = site.scope.of(loop_.extent).max;
  if (!most) refuse(step_, loop_.var.name, "how many iterations it has is known only when the kernel runs");
  return std::max<int64_t>(*most, 0);
}

// Of a loop whose ends are elements of buffers, as segments have them: the distance of the buffers' declared bounds.
Expr Grouping::between_declared(const Site& site) const {
  const Binary* length = loop_.extent.as<Binary>();
  if (!length || length->op != BinaryOp::sub || !equal(length->b, loop_.begin)) return {};
  const auto bound = [&](Expr e, Expr Facts::*side, auto&& with_guard) -> Expr {
    for (size_t i = site.path.size(); i-- > 0;)
      if (const Let* l = site.path[i].as<Let>(); l && e.as<Var>() && e.as<Var>()->id == l->var.id) e = l->value;
    if (const Cast* c = e.as<Cast>()) e = c->value;
    const Load* l = e.as<Load>();
    if (!l || !is_int(l->buffer->dtype) || l->buffer->dtype == DType::u64 || !(l->buffer->facts.*side)) return {};
    const Expr declared = l->buffer->facts.*side;
    if (!l->guard) return declared;
    const std::optional<int64_t> otherwise = as_int(l->otherwise);
    return otherwise ? with_guard(declared, Expr(*otherwise)) : Expr();
  };
  const Expr most = bound(length->a, &Facts::max, index_max), least = bound(length->b, &Facts::min, index_min);
  return most && least ? folded(index_sub(most, least)) : Expr();
}

DType Grouping::counter_type(const Expr& most, const Ranges& scope) {
  const std::optional<int64_t> n = scope.of(most).max;
  return n && *n < std::numeric_limits<int32_t>::max() ? DType::i32 : DType::i64;
}

Expr Grouping::key(const std::vector<Expr>& at) const {
  Expr flat = at[0];
  for (size_t d = 1; d < at.size(); ++d) flat = index_add(index_mul(flat, scatter_.destination[d].extent), at[d]);
  return flat;
}

// With the lets of the head that it needs. The conditions have been tested; they are kept where a divisor may need
// them.
Stmt Grouping::with_needed(Stmt result) const {
  const bool guarded =
      has_variable_divisor(result) || std::any_of(scatter_.head.begin(), scatter_.head.end(), [](const Stmt& s) {
        return s.as<Let>() && has_variable_divisor(s.as<Let>()->value);
      });
  for (size_t i = scatter_.head.size(); i-- > 0;) {
    const Stmt& s = scatter_.head[i];
    const Let* l = s.as<Let>();
    const bool destination = l && std::any_of(scatter_.destination.begin(), scatter_.destination.end(),
                                              [&](const Scatter::Dim& d) { return d.at.id == l->var.id; });
    if (l ? !destination && mentions(result, l->var.id) : guarded) result = with_body(s, result);
  }
  return result;
}

Grouped grouped(const Kernel& kernel, const Site& site, const Grouping& grouping, const Stmt& rows,
                const std::function<Stmt(const Stmt&)>& sorted_around) {
  const int64_t before = sort_before(kernel, site, grouping);
  if (before == site.loop->var.id) {
    const Stmt to = sorted_around(rows);
    return {site, to, replace(kernel, site, to)};
  }
  const Kernel inner = replace(kernel, site, rows);
  Site around = find_loop(inner, before);
  const Stmt to = sorted_around(around.stmt());
  Kernel changed = replace(inner, around, to);
  return {std::move(around), to, std::move(changed)};
}

}  // namespace gradloom::ir
