// Steps that give memory hints and change no value: streaming stores and prefetches.
#include <algorithm>

#include "gradloom/schedule.h"
#include "gradloom/target.h"
#include "gradloom/text.h"
#include "ir/index_math.h"
#include "ir/rewrite.h"
#include "ir/schedule/site.h"

namespace gradloom::ir {
namespace {

constexpr int64_t unrolled_lines = 8;

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

// The addresses that one access will touch, with the loops between the scheduled loop and the access.
struct Touch {
  std::vector<Expr> index;          // lets expanded
  std::vector<const For*> inner;    // outermost first: loops used by the index, or by the bounds of such a loop
  std::vector<const For*> skipped;  // the other loops: they may run no iteration
  bool conditional_load = false;    // an index, or a bound of these loops, is loaded under an If or a Check
};

// Collects the accesses below a loop; as a rewriter it is the identity.
struct Collect : Rewriter {
  explicit Collect(const Buffer& b) : target(b) {}
  using Rewriter::rewrite;
  Expr rewrite(const Load& n, const Expr& self) override {
    add(n.buffer, n.index);
    return Rewriter::rewrite(n, self);
  }
  Stmt rewrite(const Accumulate& n, const Stmt& self) override {
    add(n.buffer, n.index);
    return Rewriter::rewrite(n, self);
  }
  Stmt rewrite(const Store& n, const Stmt& self) override {
    if (stores) add(n.buffer, n.index);
    return Rewriter::rewrite(n, self);
  }
  Stmt rewrite(const For& n, const Stmt& self) override {
    loops.push_back(&n);
    (*this)(n.body);
    loops.pop_back();
    return self;
  }
  Stmt rewrite(const Let& n, const Stmt& self) override {
    const Expr value = expand(n.value);
    if (conditions > 0 && has_load(value)) conditional_lets.push_back(n.var.id);
    lets[n.var.id] = value;
    (*this)(n.value);
    (*this)(n.body);
    return self;
  }
  Stmt rewrite(const If& n, const Stmt& self) override {
    (*this)(n.condition);
    ++conditions;
    (*this)(n.then_case);
    (*this)(n.else_case);
    --conditions;
    return self;
  }
  Stmt rewrite(const Check& n, const Stmt& self) override {
    (*this)(n.condition);
    ++conditions;
    (*this)(n.body);
    --conditions;
    return self;
  }
  Expr expand(const Expr& e) const { return substitute(e, lets); }
  bool loaded_under_condition(const Expr& e) const {
    return (conditions > 0 && has_load(e)) ||
           std::any_of(conditional_lets.begin(), conditional_lets.end(), [&](int64_t id) { return mentions(e, id); });
  }

  void add(const Buffer& b, const std::vector<Expr>& index) {
    if (!b.same_as(target)) return;
    Touch t;
    for (const Expr& i : index) {
      t.conditional_load |= loaded_under_condition(i);
      t.index.push_back(first_lane(expand(i)));
    }
    std::vector<Expr> used = t.index;
    for (size_t i = loops.size(); i-- > 0;) {
      const For* f = loops[i];
      const bool needed = std::any_of(used.begin(), used.end(), [&](const Expr& e) { return mentions(e, f->var.id); });
      (needed ? t.inner : t.skipped).push_back(f);
      if (!needed) continue;
      for (const Expr* bound : {&f->begin, &f->extent}) {
        t.conditional_load |= loaded_under_condition(*bound);
        used.push_back(expand(*bound));
      }
    }
    std::reverse(t.inner.begin(), t.inner.end());
    const bool known = std::any_of(touches.begin(), touches.end(), [&](const Touch& o) {
      return std::equal(o.index.begin(), o.index.end(), t.index.begin(), equal);
    });
    if (!known) touches.push_back(std::move(t));
  }

  const Buffer& target;
  bool stores = false;
  int conditions = 0;
  std::vector<const For*> loops;
  Substitution lets;
  std::vector<int64_t> conditional_lets;
  std::vector<Touch> touches;
};

// Guards the loads of the prefetch: they execute only for iterations that exist.
struct GuardLoads : Rewriter {
  explicit GuardLoads(const Expr& g) : guard(g) {}
  using Rewriter::rewrite;
  Expr rewrite(const Load& n, const Expr&) override {
    bool changed = false;
    return load(n.buffer, list(n.index, changed), both(guard, (*this)(n.guard)), (*this)(n.otherwise));
  }
  const Expr& guard;
};

int64_t coefficient(const Expr& e, const Var& v) {
  for (const auto& [term, c] : linear(e).terms) {
    const Var* t = term.as<Var>();
    if (t && t->id == v.id) return c;
    if (mentions(term, v.id)) return 0;
  }
  return 0;
}

// The number of values of v per cache line, 1 where that is not known.
int64_t values_a_line(const Buffer& b, const std::vector<Expr>& index, const Var& v) {
  if (!b->strides.empty() && !is_const(b->strides.back(), 1)) return 1;
  for (size_t d = 0; d + 1 < index.size(); ++d)
    if (mentions(index[d], v.id)) return 1;
  const int64_t c = coefficient(index.back(), v);
  if (c == 0 || c <= -line_bytes || c >= line_bytes) return 1;
  return std::max<int64_t>(line_bytes / (std::abs(c) * size_of(b->dtype)), 1);
}

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

// `guard`: absent where the prefetches stand under a condition.
Stmt prefetch_nest(const Buffer& buffer, const Touch& touch, const Substitution& moved, const Expr& guard,
                   const Collect& context, int level) {
  const auto move = [&](const Expr& e) {
    const Expr later = substitute(context.expand(e), moved);
    return guard ? GuardLoads(guard)(later) : later;
  };
  Substitution fresh;
  struct Level {
    Var var;
    Expr extent;
  };
  std::vector<Level> nest;
  for (const For* f : touch.inner) {
    const int64_t step = values_a_line(buffer, touch.index, f->var);
    const Expr extent = substitute(move(f->extent), fresh);
    nest.push_back({make_var(f->var.name + "_p"), index_div(index_add(extent, step - 1), step)});
    fresh[f->var.id] = index_add(substitute(move(f->begin), fresh), index_mul(var(nest.back().var), step));
  }
  std::vector<Expr> index;
  std::vector<std::pair<Var, Expr>> loaded;  // once for all lines: each prefetch may write memory, for all LLVM knows
  for (const Expr& i : touch.index) {
    index.push_back(substitute(move(i), fresh));
    const bool same =
        std::none_of(nest.begin(), nest.end(), [&](const Level& l) { return mentions(index.back(), l.var.id); });
    const bool runs = std::all_of(nest.begin(), nest.end(), [](const Level& l) { return as_int(l.extent) >= 1; });
    if (!same || !runs || !has_load(index.back())) continue;
    loaded.push_back({make_var(buffer->name + "_p", index.back().type()), index.back()});
    index.back() = var(loaded.back().first);
  }
  Stmt result = evaluate(prefetch(buffer, std::move(index), level));
  for (size_t i = nest.size(); i-- > 0;) {
    const std::optional<int64_t> n = as_int(nest[i].extent);
    result = n == 1 ? substitute(result, {{nest[i].var.id, Expr(0)}})
                    : for_loop(nest[i].var, 0, nest[i].extent,
                               n && *n <= unrolled_lines ? ForKind::unroll : ForKind::serial, result);
  }
  for (size_t i = loaded.size(); i-- > 0;) result = let(loaded[i].first, loaded[i].second, result);
  return result;
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
  Collect collect(buffer);
  collect(loop.body);
  if (collect.touches.empty()) {
    collect.stores = true;
    collect(loop.body);
  }
  if (collect.touches.empty()) refuse("prefetch", loop.var.name, "nothing in it touches buffer " + buffer->name);

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
  for (const Touch& t : collect.touches) {
    bool loads = t.conditional_load;
    for (const Expr& i : t.index) loads |= has_load(i);
    for (const For* f : t.inner) loads |= has_load(collect.expand(f->begin)) || has_load(collect.expand(f->extent));
    if (t.conditional_load)
      refuse("prefetch", loop.var.name, "an index of " + buffer->name + " is loaded under a condition");
    if (loads && (has_load(loop.begin) || has_load(loop.extent)))
      refuse("prefetch", loop.var.name, "its bounds and an index of " + buffer->name + " are both read from memory");
    if (loads && std::any_of(t.skipped.begin(), t.skipped.end(), may_be_empty))
      refuse("prefetch", loop.var.name,
             "an index of " + buffer->name + " is loaded in a loop that may run no iteration");
    reads |= loads;
    stmts.push_back(prefetch_nest(buffer, t, {{id, later}}, until ? Expr() : exists, collect, level));
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
