// Steps that change the nesting of loops: fuse, reorder, distribute.
#include <algorithm>

#include "gradloom/schedule.h"
#include "ir/analysis/races.h"
#include "ir/index_math.h"
#include "ir/redirect.h"
#include "ir/rewrite.h"
#include "ir/schedule/fuse_segments.h"
#include "ir/schedule/site.h"
#include "ir/wrappers.h"

namespace gradloom::ir {
namespace {

// The loop `inner`, which must be perfectly nested in `outer`, with bounds invariant in `outer`.
const For& perfectly_nested(const Kernel& kernel, const char* step, const Site& site, int64_t inner) {
  const For& outer = *site.loop;
  const For* in = outer.body.as<For>();
  get_loop(kernel, inner);  // an invalid handle is an error, not a refusal
  if (!in || in->var.id != inner) refuse(step, outer.var.name, "its body is not just the inner loop");
  require_serial(step, outer);
  require_serial(step, *in);
  for (const Expr* bound : {&in->begin, &in->extent}) {
    if (mentions(*bound, outer.var.id))
      refuse(step, outer.var.name, "the bounds of its inner loop " + in->var.name + " depend on it");
    if (may_clobber(outer.body, *bound))
      refuse(step, outer.var.name,
             "the bounds of its inner loop " + in->var.name + " are read from memory that it writes");
    if (has_load(*bound) && site.scope.of(outer.extent).min.value_or(0) < 1)
      refuse(step, outer.var.name,
             "the bounds of its inner loop " + in->var.name + " are read from memory, and it may run no iteration");
  }
  return *in;
}

// A loop with the lets, checks and conditions that stand between it and the loop around it, outermost first.
struct Nested {
  const For* loop = nullptr;
  std::vector<Stmt> between;
};

// The loop `inner` with what stands between it and the site's loop, when that may as well stand in it: it is then
// evaluated once an iteration of both loops.
Nested nested_in(const Kernel& kernel, const Site& site, int64_t inner) {
  const For& outer = *site.loop;
  Nested nested;
  Stmt s = outer.body;
  for (; is_wrapper(s) && !s.as<For>() && !s.as<Alloc>(); s = body_of(s)) nested.between.push_back(s);
  if (nested.between.empty()) return {&perfectly_nested(kernel, "reorder", site, inner), {}};
  const std::string& name = outer.var.name;
  nested.loop = s.as<For>();
  const std::string inner_name = get_loop(kernel, inner).var.name;  // an invalid handle is an error, not a refusal
  if (!nested.loop || nested.loop->var.id != inner)
    refuse("reorder", name, "its body is not lets, checks and conditions around loop " + inner_name);
  const For& in = *nested.loop;
  require_serial("reorder", outer);
  require_serial("reorder", in);
  const auto refuse_bounds = [&](const std::string& why) {
    refuse("reorder", name, "the bounds of its inner loop " + inner_name + " " + why);
  };
  for (const Expr* bound : {&in.begin, &in.extent}) {
    if (mentions(*bound, outer.var.id)) refuse_bounds("depend on it");
    if (has_load(*bound)) refuse_bounds("are read from memory in its body");
  }
  for (const Stmt& w : nested.between) {
    const Let* l = w.as<Let>();
    if (l && (mentions(in.begin, l->var.id) || mentions(in.extent, l->var.id)))
      refuse_bounds("depend on the let " + l->var.name + " in its body");
    if (w.as<Check>() && site.scope.of(in.extent).min.value_or(0) < 1)
      refuse("reorder", name,
             "its inner loop " + inner_name + " may run no iteration, and a check stands between them");
    if (any_of_own(w, [&](const Expr& e) { return may_clobber(outer.body, e); }))
      refuse("reorder", name, "what stands between it and loop " + inner_name + " reads memory that it writes");
  }
  return nested;
}

// One statement of a distributed body, with the lets, allocs and conditions that enclose it.
struct Piece {
  std::vector<Stmt> wrappers;  // outermost first
  Stmt stmt;
};

void collect_pieces(const Stmt& s, bool conditions, std::vector<Stmt>& wrappers, std::vector<Piece>& pieces) {
  const auto below = [&](const Stmt& body) {
    wrappers.push_back(s);
    collect_pieces(body, conditions, wrappers, pieces);
    wrappers.pop_back();
  };
  if (const Block* b = s.as<Block>()) {
    for (const Stmt& part : b->stmts) collect_pieces(part, conditions, wrappers, pieces);
  } else if (const If* i = s.as<If>(); i && conditions && !i->else_case) {
    below(i->then_case);
  } else if (const Let* l = s.as<Let>()) {
    below(l->body);
  } else if (const Alloc* a = s.as<Alloc>()) {
    below(a->body);
  } else {
    pieces.push_back({wrappers, s});
  }
}

bool touches(const Stmt& s, const Buffer& b) { return !accesses(s, b).empty(); }

}  // namespace

Schedule::Loop Schedule::fuse(Loop outer_id, Loop inner_id) {
  const Site site = find_loop(kernel_, outer_id);
  const For& outer = *site.loop;
  if (const FusedSegments fused = fuse_segments(site, inner_id); fused.loop) {
    put("fuse", site, fused.nest, "fuse " + handle_name(kernel_, outer_id) + " " + handle_name(kernel_, inner_id));
    return fused.loop;
  }
  const For& inner = perfectly_nested(kernel_, "fuse", site, inner_id);
  const std::string line = "fuse " + handle_name(kernel_, outer_id) + " " + handle_name(kernel_, inner_id);
  const Bounds rows = read_once(outer, site.scope), columns = read_once(inner, site.scope);
  const Var both = make_var(outer.var.name + "_" + inner.var.name);
  const std::optional<int64_t> width = as_int(columns.extent), height = as_int(rows.extent);
  // The fused trip count would overflow; refused when that is known statically.
  if (int64_t all = 0; width && height && __builtin_mul_overflow(*width, *height, &all))
    refuse("fuse", outer.var.name, "one loop cannot count its iterations with those of " + inner.var.name);
  Stmt nest;
  if (width && *width == 0) {
    nest = for_loop(both, 0, 0, ForKind::serial, block({}));
  } else {
    // With width zero the division never executes, but the divisor must be provably nonzero whatever later steps do to
    // the enclosing loops. It is a named let, so that all indices keep the same divisor whatever guards let simplify
    // derive about it.
    const Range known = Ranges(kernel_).of(columns.extent);
    const bool nonzero = known.min && *known.min > 0;
    const Var width_var = make_var(inner.var.name + "_w");
    const Expr divisor = nonzero ? columns.extent : var(width_var);
    const Expr row = width ? index_div(var(both), *width) : floor_div(var(both), divisor);
    const Expr column = width ? index_mod(var(both), *width) : floor_mod(var(both), divisor);
    const Stmt body =
        substitute(inner.body, {{outer_id, index_add(rows.begin, row)}, {inner_id, index_add(columns.begin, column)}});
    nest = for_loop(both, 0, index_mul(rows.extent, columns.extent), ForKind::serial, body);
    if (!width && !nonzero) nest = let(width_var, index_max(columns.extent, 1), nest);
  }
  put("fuse", site, rows.wrap(columns.wrap(nest)), line);
  return both.id;
}

// Legal when the iterations of the new inner loop, or those of the new outer loop, are independent for all pairs of
// iterations of the other loop: then no dependence has direction (<, >).
void Schedule::reorder(Loop outer_id, Loop inner_id) {
  const Site site = find_loop(kernel_, outer_id);
  const For& outer = *site.loop;
  const Nested nested = nested_in(kernel_, site, inner_id);
  const For& inner = *nested.loop;
  const Bounds rows = read_once(outer, site.scope);
  const Stmt swapped =
      for_loop(inner.var, inner.begin, inner.extent, inner.kind,
               for_loop(outer.var, rows.begin, rows.extent, outer.kind, wrapped(nested.between, inner.body)));
  const std::string conflict = loop_carried_conflict(outer, site.scope);
  if (!conflict.empty() && !loop_carried_conflict(*swapped.as<For>(), site.scope).empty())
    refuse("reorder", outer.var.name, "with loop " + inner.var.name + ": " + conflict);
  const std::string line = "reorder " + handle_name(kernel_, outer_id) + " " + handle_name(kernel_, inner_id);
  put("reorder", site, rows.wrap(swapped), line);
}

// Legal when no statement of one iteration conflicts with an earlier statement of a later iteration: each pair of
// statements that shares a written buffer must then have independent iterations.
std::vector<Schedule::Loop> Schedule::distribute(Loop id) {
  const Site site = find_loop(kernel_, id);
  const For& loop = *site.loop;
  require_serial("distribute", loop);
  std::vector<Stmt> wrappers;
  std::vector<Piece> pieces;
  collect_pieces(loop.body, false, wrappers, pieces);
  if (pieces.size() < 2) {  // under a condition
    pieces.clear();
    collect_pieces(loop.body, true, wrappers, pieces);
  }
  if (pieces.size() < 2) refuse("distribute", loop.var.name, "its body is one statement");

  std::vector<Buffer> outside = kernel_.buffers, own;
  for (const Stmt& s : site.path)
    if (const Alloc* a = s.as<Alloc>()) outside.push_back(a->buffer);
  std::unordered_map<int64_t, Stmt> declared;  // allocs between the loop and its statements
  for (const Piece& p : pieces)
    for (const Stmt& w : p.wrappers) {
      if (const Let* l = w.as<Let>(); l && may_clobber(loop.body, l->value))
        refuse("distribute", loop.var.name, "the let " + l->var.name + " reads memory that the loop writes");
      if (const If* i = w.as<If>(); i && may_clobber(loop.body, i->condition))
        refuse("distribute", loop.var.name, "a condition around its statements reads memory that the loop writes");
      if (const Alloc* a = w.as<Alloc>(); a && declared.emplace(a->buffer->id, w).second) own.push_back(a->buffer);
    }
  for (const Buffer& b : outside) {
    for (size_t x = 0; x < pieces.size(); ++x)
      for (size_t y = x + 1; y < pieces.size(); ++y) {
        const std::vector<BufferAccess> first = accesses(pieces[x].stmt, b), second = accesses(pieces[y].stmt, b);
        const auto writes = [](const BufferAccess& a) { return a.writes; };
        if (first.empty() || second.empty() ||
            (std::none_of(first.begin(), first.end(), writes) && std::none_of(second.begin(), second.end(), writes)))
          continue;
        Stmt pair = block({pieces[x].stmt, pieces[y].stmt});
        std::vector<Stmt> around = pieces[x].wrappers;
        for (const Stmt& w : pieces[y].wrappers)
          if (std::none_of(around.begin(), around.end(), [&](const Stmt& o) { return o.same_as(w); }))
            around.push_back(w);
        for (size_t i = around.size(); i-- > 0;) pair = with_body(around[i], pair);
        const Stmt alone = for_loop(loop.var, loop.begin, loop.extent, loop.kind, pair);
        if (const std::string conflict = loop_carried_conflict(*alone.as<For>(), site.scope); !conflict.empty())
          refuse("distribute", loop.var.name, conflict);
      }
  }

  Redirections widened;  // Redirects to the current iteration's part of an expanded buffer
  std::vector<Buffer> around;
  const Bounds bounds = read_once(loop, site.scope);
  const auto part = [place = index_sub(var(loop.var), bounds.begin)](std::vector<Expr> index) {
    index.push_back(place);
    return index;
  };
  for (const Buffer& b : own) {
    const auto users = std::count_if(pieces.begin(), pieces.end(), [&](const Piece& p) {
      return touches(p.stmt, b) || std::any_of(p.wrappers.begin(), p.wrappers.end(), [&](const Stmt& w) {
               const Let* l = w.as<Let>();
               const If* i = w.as<If>();
               return (l && touches(let(l->var, l->value, block({})), b)) ||
                      (i && touches(if_then(i->condition, block({})), b));
             });
    });
    if (users < 2) continue;
    if (!as_int(bounds.extent))
      refuse("distribute", loop.var.name,
             "its extent is not a constant, and buffer " + b->name + " would need one place an iteration");
    BufferNode node = *b;
    node.id = 0;
    for (const Expr& dim : node.dims)
      if (!uses_only(dim, visible(kernel_, site, false)))
        refuse("distribute", loop.var.name, "the dims of buffer " + b->name + " depend on it");
    node.dims.push_back(bounds.extent);
    node.facts.nondecreasing = node.facts.injective = false;
    drop_open_facts(node, visible(kernel_, site, false));
    around.push_back(make_buffer(std::move(node)));
    widened[b->id] = {around.back(), part};
  }

  const std::string line = "distribute " + handle_name(kernel_, id);
  std::vector<Loop> result;
  std::vector<Stmt> loops;
  for (const Piece& p : pieces) {
    Stmt body = p.stmt;
    for (size_t i = p.wrappers.size(); i-- > 0;) {
      const Let* l = p.wrappers[i].as<Let>();
      const Alloc* a = p.wrappers[i].as<Alloc>();
      if (p.wrappers[i].as<If>() || (l && mentions(body, l->var.id))) body = with_body(p.wrappers[i], body);
      if (a && !widened.contains(a->buffer->id) && touches(body, a->buffer)) body = with_body(p.wrappers[i], body);
    }
    body = redirect(body, widened);
    const Stmt one = for_loop(loop.var, bounds.begin, bounds.extent, loop.kind, body);
    loops.push_back(loops.empty() ? one : refresh(one));
    result.push_back(loops.back().as<For>()->var.id);
  }
  Stmt all = block(std::move(loops));
  for (const Buffer& b : around) all = alloc(b, all);
  put("distribute", site, bounds.wrap(all), line);
  return result;
}

}  // namespace gradloom::ir
