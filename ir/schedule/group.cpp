// The step group: a stable counting sort of a scatter's iterations by destination, then each destination's in order.
#include <algorithm>
#include <limits>

#include "gradloom/schedule.h"
#include "ir/index_math.h"
#include "ir/rewrite.h"
#include "ir/schedule/scatter.h"
#include "ir/wrappers.h"

namespace gradloom::ir {
namespace {

class Group {
 public:
  Group(const Kernel& kernel, const Site& site, const Buffer& buffer)
      : loop_(*site.loop),
        scatter_(scatter_of("group", site, buffer)),
        bounds_(read_once(loop_, site.scope)),
        n_(most_iterations(kernel, site)),
        rows_(row_count(site.scope)),
        counter_(counter_type(site.scope)) {
    const std::string& name = buffer->name;
    first_ = table(name + "_first", folded(index_add(rows_, 2)), n_);
    order_ = table(name + "_order", n_, folded(index_sub(n_, 1)));
    require_small(buffer);
  }

  // The iterations of each destination.
  Stmt rows(Schedule::Groups& handles) const {
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
    const Stmt one = let(k, index_add(bounds_.begin, i64(load(order_, {var(g)}))), substitute(update(), known));
    Stmt nest = for_loop(g, var(begin), var(end) - var(begin), ForKind::serial, one);
    nest = let(begin, i64(load(first_, {key(at)})), let(end, i64(load(first_, {index_add(key(at), 1)})), nest));
    for (size_t d = vars.size(); d-- > 0;)
      nest = for_loop(vars[d], 0, scatter_.destination[d].extent, ForKind::serial, nest);
    for (const Var& v : vars) handles.rows.push_back(v.id);
    handles.group = g.id;
    return nest;
  }

  // The tables, filled, around a statement that uses them. The histogram is two places off: its running sum puts the
  // start of row j in first[j + 1], and placing advances that to the start of row j + 1.
  Stmt sorted_around(const Stmt& use, Schedule::Groups& handles) const {
    const std::string& name = loop_.var.name;
    const Var z = make_var(name + "_z"), n = make_var(name + "_n"), s = make_var(name + "_s"),
              p = make_var(name + "_p");
    handles.clear = z.id, handles.count = n.id, handles.starts = s.id, handles.place = p.id;
    const Stmt clear = for_loop(z, 0, index_add(rows_, 2), ForKind::serial, store(first_, {var(z)}, number(0)));
    const Stmt count = each(n, [&](const std::vector<Expr>& at) {
      return accumulate(first_, {index_add(key(at), 2)}, AccumulateOp::add, number(1));
    });
    const Buffer running = make_buffer(
        {.name = name + "_sum", .dtype = counter_, .dims = {1}, .role = Role::temp, .space = Space::registers});
    const std::vector<Expr> next{index_add(var(s), 2)};
    const Stmt starts =
        alloc(running, block({store(running, {0}, number(0)),
                              for_loop(s, 0, rows_, ForKind::serial,
                                       block({accumulate(running, {0}, AccumulateOp::add, load(first_, next)),
                                              store(first_, next, load(running, {0}))}))}));
    const Stmt place = each(p, [&](const std::vector<Expr>& at) {
      const Var slot = make_var(name + "_slot", {counter_, 1});
      const std::vector<Expr> row{index_add(key(at), 1)};
      return let(slot, load(first_, row),
                 block({store(order_, {i64(var(slot))}, number(index_sub(var(p), bounds_.begin))),
                        store(first_, row, var(slot) + number(1))}));
    });
    handles.all = make_var(name + "_all");
    const Stmt placed = let(handles.all, i64(load(first_, {rows_})), use);
    return bounds_.wrap(alloc(first_, alloc(order_, block({clear, count, starts, place, placed}))));
  }

  // Whether sorting may as well stand before this statement, which is around the loop.
  bool independent_of(const Stmt& around) const {
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
  bool loads_or_checks() const {
    return scatter_.head_loads_or_checks() || has_load(loop_.begin) || has_load(loop_.extent);
  }

 private:
  static Expr folded(const Expr& e) {
    const Linear l = linear(e);
    return l.exact && l.terms.empty() ? Expr(l.constant) : e;
  }
  static Expr i64(const Expr& e) { return e.dtype() == DType::i64 ? e : cast(DType::i64, e); }
  Expr number(const Expr& e) const { return counter_ == DType::i64 ? e : cast(counter_, e); }
  Expr number(int value) const { return constant_int(counter_, value); }

  Expr row_count(const Ranges& scope) const {
    Expr rows = 1;
    for (const Scatter::Dim& d : scatter_.destination) {
      const std::optional<int64_t> a = as_int(rows), b = as_int(d.extent);
      if (int64_t all = 0; a && b && __builtin_mul_overflow(*a, *b, &all))
        refuse("group", loop_.var.name, "one number cannot count its destinations");
      rows = index_mul(rows, d.extent);
    }
    if (!as_int(rows) && !scope.sum_fits(rows, 2))
      refuse("group", loop_.var.name, "one number is not proved to count its destinations");
    return rows;
  }
  // At least the number of iterations, known before the kernel runs: what its tables hold.
  Expr most_iterations(const Kernel& kernel, const Site& site) const {
    std::vector<Var> scalars;
    for (const Scalar& s : kernel.scalars) scalars.push_back(s.var);
    const Expr n = folded(bounds_.extent);
    if (uses_only(n, scalars)) return n;
    if (const Expr between = between_declared(site); between && !as_int(between) && uses_only(between, scalars))
      return nonnegative(between, site.scope);
    const std::optional<int64_t> most = site.scope.of(loop_.extent).max;
    if (!most) refuse("group", loop_.var.name, "how many iterations it has is known only when the kernel runs");
    return std::max<int64_t>(*most, 0);
  }
  // Of a loop whose ends are elements of buffers, as segments have them: the distance of the buffers' declared bounds.
  Expr between_declared(const Site& site) const {
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
  DType counter_type(const Ranges& scope) const {
    const std::optional<int64_t> n = scope.of(n_).max;
    return n && *n < std::numeric_limits<int32_t>::max() ? DType::i32 : DType::i64;
  }
  Buffer table(const std::string& name, const Expr& length, const Expr& most) const {
    return make_buffer(
        {.name = name, .dtype = counter_, .dims = {length}, .role = Role::temp, .facts = {.min = 0, .max = most}});
  }
  void require_small(const Buffer& buffer) const {
    const std::optional<int64_t> rows = as_int(rows_), n = as_int(n_);
    const __int128 bytes = (__int128{rows.value_or(0)} + n.value_or(0)) * size_of(counter_);
    if (bytes > Schedule::max_table_bytes)
      refuse("group", loop_.var.name,
             "its tables of the destinations in " + buffer->name + " would take " +
                 std::to_string(static_cast<int64_t>(bytes / 1'000'000'000)) + " GB");
  }

  // Row-major among the destination dims.
  Expr key(const std::vector<Expr>& at) const {
    Expr flat = at[0];
    for (size_t d = 1; d < at.size(); ++d) flat = index_add(index_mul(flat, scatter_.destination[d].extent), at[d]);
    return flat;
  }
  // A loop over all iterations that have a destination.
  Stmt each(const Var& v, const std::function<Stmt(const std::vector<Expr>&)>& body) const {
    return for_loop(v, bounds_.begin, folded(bounds_.extent), ForKind::serial,
                    substitute(scatter_.around(body), {{loop_.var.id, var(v)}}));
  }
  // The tail with the lets of the head that it needs. The conditions have been tested; they are kept where a divisor
  // may need them.
  Stmt update() const {
    Stmt result = scatter_.tail;
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

  const For& loop_;
  const Scatter scatter_;
  const Bounds bounds_;
  const Expr n_, rows_;  // at least as many iterations, and exactly as many destinations
  const DType counter_;
  Buffer first_, order_;
};

// The outermost loop around the site that sorting does not depend on; the site's own where there is none.
int64_t sort_before(const Kernel& kernel, const Site& site, const Group& group) {
  int64_t before = site.loop->var.id;
  for (size_t i = site.path.size() - 1; i-- > 0;) {
    const Stmt& s = site.path[i];
    if (s.as<If>() || s.as<Check>() || !group.independent_of(s)) break;
    const For* f = s.as<For>();
    if (!f) continue;
    if (f->kind != ForKind::serial && f->kind != ForKind::parallel) break;
    // What is loaded or checked would be so even if the loop ran no iteration.
    if (group.loads_or_checks() && find_loop(kernel, f->var.id).scope.of(f->extent).min.value_or(0) < 1) break;
    before = f->var.id;
  }
  return before;
}

}  // namespace

Schedule::Groups Schedule::group(Loop id, const Buffer& buffer) {
  const Site site = find_loop(kernel_, id);
  const std::string line = "group " + handle_name(kernel_, id) + " " + handle_name(kernel_, buffer);
  const Group group(kernel_, site, buffer);
  Groups handles;
  const int64_t before = sort_before(kernel_, site, group);
  const Stmt rows = group.rows(handles);
  if (before == id) {
    put("group", site, group.sorted_around(rows, handles), line);
    return handles;
  }
  const Kernel inner = replace(kernel_, site, rows);
  const Site around = find_loop(inner, before);
  const Stmt to = group.sorted_around(around.stmt(), handles);
  Kernel changed = replace(inner, around, to);
  if (!part_of_step_) require_proved("group", around, kernel_, changed, to);
  kernel_ = std::move(changed);
  trace_.push_back(line);
  return handles;
}

}  // namespace gradloom::ir
