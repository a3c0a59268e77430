// Steps that cut a loop's range: split, split_guarded, partition, and vectorize by a number of lanes.
#include "gradloom/schedule.h"
#include "ir/analysis/races.h"
#include "ir/index_math.h"
#include "ir/rewrite.h"
#include "ir/schedule/decide.h"
#include "ir/schedule/site.h"

namespace gradloom::ir {
namespace {

bool divides(int64_t factor, const Expr& extent, const Ranges& scope) {
  if (const std::optional<int64_t> n = as_int(extent)) return *n % factor == 0;
  return known_multiple(extent, scope) % factor == 0;
}

void require_factor(const char* step, const For& loop, int64_t factor) {
  if (factor < 1) wrong_argument(step, loop.var.name, "the factor must be at least 1, got " + std::to_string(factor));
}

bool does_nothing(const Stmt& body) {
  bool acts = false;
  walk(body, [&](const Stmt& s) {
    acts |= !s.as<Block>() && !s.as<For>() && !s.as<Let>() && !s.as<If>() && !s.as<Alloc>();
  });
  return !acts;
}

// a - b, a constant where it is one.
Expr difference(const Expr& a, const Expr& b) {
  const Expr e = index_sub(a, b);
  const Linear l = linear(e);
  return l.terms.empty() && l.exact ? Expr(l.constant) : e;
}

}  // namespace

Schedule::Split Schedule::split(Loop id, int64_t factor) {
  const Site site = find_loop(kernel_, id);
  const For& loop = *site.loop;
  require_serial("split", loop);
  require_factor("split", loop, factor);
  const std::string line =
      part_of_step_ ? std::string() : "split " + handle_name(kernel_, id) + " " + std::to_string(factor);
  const Bounds bounds = read_once(loop, site.scope);
  const Var outer = make_var(loop.var.name + "_o"), inner = make_var(loop.var.name + "_i");
  const Expr whole = index_div(bounds.extent, factor);
  Split result{0, 0, 0};
  Stmt main, tail;
  if (!is_const(whole, 0)) {
    const Expr value = index_add(bounds.begin, index_add(index_mul(var(outer), factor), var(inner)));
    main = for_loop(outer, 0, whole, ForKind::serial,
                    for_loop(inner, 0, factor, ForKind::serial, substitute(loop.body, {{id, value}})));
    result.outer = outer.id;
    result.inner = inner.id;
  }
  if (!divides(factor, bounds.extent, site.scope)) {
    const Var rest = make_var(loop.var.name + "_t");
    // The first subrange keeps the body's own ids, so that handles of inner loops stay valid.
    const Stmt body = substitute(main ? refresh(loop.body) : loop.body, {{id, var(rest)}});
    tail = for_loop(rest, index_add(bounds.begin, index_mul(whole, factor)), index_mod(bounds.extent, factor),
                    ForKind::serial, body);
    result.tail = rest.id;
  }
  put("split", site, bounds.wrap(block({main, tail})), line);
  return result;
}

Schedule::Split Schedule::split_guarded(Loop id, int64_t factor) {
  const Site site = find_loop(kernel_, id);
  const For& loop = *site.loop;
  require_serial("split_guarded", loop);
  require_factor("split_guarded", loop, factor);
  const std::string line =
      part_of_step_ ? std::string() : "split_guarded " + handle_name(kernel_, id) + " " + std::to_string(factor);
  const Bounds bounds = read_once(loop, site.scope);
  const Var outer = make_var(loop.var.name + "_o"), inner = make_var(loop.var.name + "_i");
  const Expr offset = index_add(index_mul(var(outer), factor), var(inner));
  Stmt body = substitute(loop.body, {{id, index_add(bounds.begin, offset)}});
  if (!divides(factor, bounds.extent, site.scope)) {
    // The last block's end may overflow an i64; the remaining count does not.
    const bool fits = site.scope.sum_fits(bounds.extent, factor - 1);
    const Expr exists =
        fits ? offset < bounds.extent : var(inner) < index_sub(bounds.extent, index_mul(var(outer), factor));
    body = if_then(exists, body);
  }
  const Expr blocks = ceil_div(bounds.extent, factor, site.scope);
  const Stmt nest = for_loop(outer, 0, blocks, ForKind::serial, for_loop(inner, 0, factor, ForKind::serial, body));
  put("split_guarded", site, bounds.wrap(nest), line);
  return {outer.id, inner.id, 0};
}

Schedule::Loop Schedule::vectorize(Loop id, int lanes, int copies) {
  const Site site = find_loop(kernel_, id);
  const For& loop = *site.loop;
  require_serial("vectorize", loop);
  if (lanes < 2 || lanes > 64)
    wrong_argument("vectorize", loop.var.name, "the lanes must be 2 to 64, got " + std::to_string(lanes));
  if (copies < 1 || copies > 64)
    wrong_argument("vectorize", loop.var.name, "the copies must be 1 to 64, got " + std::to_string(copies));
  const std::string line = "vectorize " + handle_name(kernel_, id) + " " + std::to_string(lanes) +
                           (copies > 1 ? " " + std::to_string(copies) : "");

  Schedule work(kernel_, level_);
  work.part_of_step_ = true;
  Loop whole = 0, rest = id;
  if (copies > 1) {
    const Split s = work.split(id, static_cast<int64_t>(lanes) * copies);
    if (s.outer) {
      const Split copy = work.split(s.inner, lanes);
      work.unroll(copy.outer);
      work.vectorize(copy.inner);
      whole = s.outer;
    }
    rest = s.tail;
  }
  if (rest) {
    const Split s = work.split(rest, lanes);
    if (s.outer) {
      work.vectorize(s.inner);
      if (!whole) whole = s.outer;
    }
    if (s.tail) {
      const Split last = work.split_guarded(s.tail, lanes);  // at most one vector: the tail is shorter
      work.vectorize(last.inner);
      if (!whole) whole = last.outer;
    }
  }
  // No loop below was parallel or vector: the bodies of the parts need no new proof.
  if (!part_of_step_) require_proved("vectorize", site, kernel_, work.kernel_, whole ? loop.body : block({}));
  kernel_ = work.kernel_;
  trace_.push_back(line);
  return whole;
}

std::pair<Schedule::Loop, Schedule::Loop> Schedule::partition(Loop id, Expr point) {
  const Site site = find_loop(kernel_, id);
  const For& loop = *site.loop;
  require_serial("partition", loop);
  if (!point || point.type() != Type{}) wrong_argument("partition", loop.var.name, "the point must be an i64 scalar");
  const std::vector<Var> vars = visible(kernel_, site, false);
  if (!uses_only(point, vars))
    wrong_argument("partition", loop.var.name, "the point uses a variable that is not known outside the loop");
  if (has_load(point)) wrong_argument("partition", loop.var.name, "the point reads memory");
  const std::string line = "partition " + handle_name(kernel_, id) + " " + write_expr(point, vars);

  const Bounds bounds = read_once(loop, site.scope);
  const Expr end = index_add(bounds.begin, bounds.extent);
  // Where the range wraps, its values are not in this order: the first part is then empty.
  const bool in_order = site.scope.sum_fits(bounds.begin, bounds.extent);
  Expr middle = point;
  if (!in_order || site.scope.proves(point <= end) != true) middle = index_min(middle, end);
  if (!in_order || site.scope.proves(bounds.begin <= point) != true) middle = index_max(middle, bounds.begin);
  const Var low = make_var(loop.var.name + "_a"), high = make_var(loop.var.name + "_z");
  const auto part = [&](const Var& v, const Expr& begin, const Expr& extent, const Expr& side, const Stmt& body) {
    const Stmt raw = for_loop(v, begin, extent, ForKind::serial, substitute(body, {{id, var(v)}}));
    Ranges known = site.scope;
    known.enter(*raw.as<For>());
    if (in_order) known.assume(side);
    const Stmt rest = fold_decided(raw.as<For>()->body, known);
    return does_nothing(rest) ? block({}) : for_loop(v, begin, extent, ForKind::serial, rest);
  };
  const Stmt first = part(low, bounds.begin, difference(middle, bounds.begin), var(low) < point, loop.body);
  const Stmt second = part(high, middle, difference(end, middle), point <= var(high), refresh(loop.body));
  put("partition", site, bounds.wrap(block({first, second})), line);
  return {first.as<For>() ? low.id : 0, second.as<For>() ? high.id : 0};
}

}  // namespace gradloom::ir
