// Steps that redirect accesses to separate memory: stage, privatise.
#include <algorithm>

#include "gradloom/schedule.h"
#include "ir/analysis/scoped_walk.h"
#include "ir/children.h"
#include "ir/index_math.h"
#include "ir/redirect.h"
#include "ir/reduction.h"
#include "ir/rewrite.h"
#include "ir/schedule/filled.h"
#include "ir/schedule/site.h"

namespace gradloom::ir {
namespace {

// Calls `see` on every index of the buffer with the facts known there.
class EachAccess : public ScopedWalk<EachAccess> {
 public:
  using See = std::function<void(const std::vector<Expr>& index, const Ranges& known)>;
  EachAccess(const Buffer& buffer, const Ranges& known, See see)
      : ScopedWalk(known), buffer_(buffer), see_(std::move(see)) {}

 private:
  friend ScopedWalk;
  template <class Node>
  void visit(const Node& n, const Stmt&) {
    if constexpr (std::is_same_v<Node, Reduce>) return (*this)(in_loops(n));
    if constexpr (std::is_same_v<Node, Store> || std::is_same_v<Node, Accumulate>) look(n.buffer, n.index, n.guard);
    Children{[&](const auto& part) {
      if constexpr (std::is_same_v<std::decay_t<decltype(part)>, Expr>)
        walk(part, [&](const Expr& e) {
          if (const Load* l = e.as<Load>()) look(l->buffer, l->index, l->guard);
        });
    }}(n);
    below(n);
  }
  void look(const Buffer& b, const std::vector<Expr>& index, const Expr& guard) {
    if (!b.same_as(buffer_)) return;
    const Ranges::Scope inner(scope_, guard);
    see_(index, scope_);
  }
  const Buffer& buffer_;
  const See see_;
};

// A loop nest over [0, extents) around the result of `body` for its variables.
Stmt over(const std::string& name, const std::vector<Expr>& extents,
          const std::function<Stmt(const std::vector<Expr>&)>& body) {
  std::vector<Var> vars;
  std::vector<Expr> index;
  for (size_t d = 0; d < extents.size(); ++d) {
    vars.push_back(make_var(name + std::to_string(d)));
    index.push_back(var(vars.back()));
  }
  Stmt s = body(index);
  for (size_t d = extents.size(); d-- > 0;) s = for_loop(vars[d], 0, extents[d], ForKind::serial, s);
  return s;
}

std::string joined(const std::vector<Expr>& exprs, const std::vector<Var>& vars) {
  std::string text;
  for (const Expr& e : exprs) text += (text.empty() ? "" : ";") + write_expr(e, vars);
  return text;
}

// Whether unordered iterations below the loop share an allocation made inside it.
bool shared_below(const For& loop) {
  return any_of(loop.body, [](const Stmt& x) { return x.as<For>() && any_order(x.as<For>()->kind); });
}

}  // namespace

Buffer Schedule::stage(Loop id, const Buffer& buffer, std::vector<Expr> begin, std::vector<Expr> extent) {
  const Site site = find_loop(kernel_, id);
  const For& loop = *site.loop;
  const std::string name = handle_name(kernel_, buffer);
  const std::vector<Var> vars = visible(kernel_, site, true);
  const size_t rank = buffer->dims.size();
  if (loop.kind == ForKind::vector) refuse("stage", loop.var.name, "it is a vector loop");
  if (begin.size() != rank || extent.size() != rank)
    wrong_argument("stage", loop.var.name,
                   "buffer " + buffer->name + " has rank " + std::to_string(rank) + ", the window " +
                       std::to_string(begin.size()));
  for (const std::vector<Expr>* list : {&begin, &extent})
    for (const Expr& e : *list)
      if (!e || e.type() != Type{} || !uses_only(e, vars))
        wrong_argument("stage", loop.var.name,
                       "the window of " + buffer->name + " uses what is not known in the loop's body");
  const std::string line = "stage " + handle_name(kernel_, id) + " " + name +
                           (rank ? " " + joined(begin, vars) + " " + joined(extent, vars) : "");
  require_outside("stage", loop, buffer);
  const std::vector<BufferAccess> all = accesses(loop.body, buffer);
  if (all.empty()) refuse("stage", loop.var.name, "nothing in it touches buffer " + buffer->name);
  const Ranges inside = site.inside();

  for (const Expr& e : extent)
    if (inside.proves(0 <= e) != true)
      refuse("stage", loop.var.name, "the window of " + buffer->name + " is not proved to have an extent of 0 or more");
  EachAccess(buffer, inside, [&](const std::vector<Expr>& index, const Ranges& known) {
    for (size_t d = 0; d < rank; ++d) {
      if (index[d].lanes() > 1) refuse("stage", loop.var.name, "buffer " + buffer->name + " is accessed by vectors");
      if (known.proves(begin[d] <= index[d]) != true || known.proves(index[d] < index_add(begin[d], extent[d])) != true)
        refuse("stage", loop.var.name,
               "an access to buffer " + buffer->name + " is not proved inside the window in dim " + std::to_string(d));
    }
  })(loop.body);

  Facts facts = buffer->facts;
  facts.exclusive = false;
  for (size_t d = 0; d < rank; ++d)  // padding beyond an edge is no element of the buffer
    if (inside.proves(0 <= begin[d]) != true ||
        inside.proves(index_add(begin[d], extent[d]) <= buffer->dims[d]) != true)
      facts = {};
  const Buffer staged = make_buffer({.name = buffer->name + "_s",
                                     .dtype = buffer->dtype,
                                     .dims = extent,
                                     .role = Role::temp,
                                     .alignment = 64,
                                     .facts = facts});
  const auto place = [&](const std::vector<Expr>& offset) {
    std::vector<Expr> index;
    for (size_t d = 0; d < rank; ++d) index.push_back(index_add(begin[d], offset[d]));
    return index;
  };
  // The window may extend over the buffer's edges, where nothing is accessed.
  const auto guard = [&](const std::vector<Expr>& index) {
    Expr inside_buffer;
    for (size_t d = 0; d < rank; ++d) {
      if (inside.proves(0 <= begin[d]) != true) inside_buffer = both(inside_buffer, 0 <= index[d]);
      if (inside.proves(index_add(begin[d], extent[d]) <= buffer->dims[d]) != true)
        inside_buffer = both(inside_buffer, index[d] < buffer->dims[d]);
    }
    return inside_buffer;
  };
  Stmt in, out;
  bool partly = false;
  const bool filled = writes_region(loop.body, buffer, begin, extent, inside, &partly);
  // What no other statement touches is not copied back, and not needed any more.
  const auto hint = [&](const Expr& e) { return e.as<Intrinsic>() && e.as<Intrinsic>()->buffer.same_as(buffer); };
  const bool only_here = filled && buffer->role == Role::temp && accesses(kernel_.body, buffer).size() == all.size() &&
                         !any_of(kernel_.body, hint);
  if (!filled) {
    if ((buffer->role == Role::out || buffer->role == Role::temp) && !filled_before(site, buffer, begin, extent))
      refuse("stage", loop.var.name,
             "it would copy in elements of buffer " + buffer->name + " that are not proved to be written earlier");
    in = over(staged->name + "_r", extent, [&](const std::vector<Expr>& offset) {
      const std::vector<Expr> from = place(offset);
      return store(staged, offset, load(buffer, from, guard(from)));
    });
  }
  if (writes(loop.body, buffer) && !only_here) {
    const bool streaming = std::all_of(all.begin(), all.end(), [](const BufferAccess& a) {
      return !a.writes || (a.stmt.as<Store>() && a.stmt.as<Store>()->streaming);
    });
    out = over(staged->name + "_w", extent, [&](const std::vector<Expr>& offset) {
      const std::vector<Expr> to = place(offset);
      return store(buffer, to, load(staged, offset, filled && partly ? guard(to) : Expr()), guard(to), streaming);
    });
  }
  const auto offset = [&](std::vector<Expr> index) {
    for (size_t d = 0; d < rank; ++d) index[d] = to_expr(linear(index_sub(index[d], begin[d])));
    return index;
  };
  const Stmt body = redirect(loop.body, buffer, {staged, offset, false, shared_below(loop)});
  const Stmt result = for_loop(loop.var, loop.begin, loop.extent, loop.kind, alloc(staged, block({in, body, out})));
  put("stage", site, result, line);
  if (only_here) kernel_.body = redirect(kernel_.body, buffer, {staged, {}});  // drops its alloc
  return staged;
}

Buffer Schedule::privatise(Loop id, const Buffer& buffer) {
  const Site site = find_loop(kernel_, id);
  const For& loop = *site.loop;
  require_serial("privatise", loop);
  require_outside("privatise", loop, buffer);
  const std::string line = "privatise " + handle_name(kernel_, id) + " " + handle_name(kernel_, buffer);
  std::optional<AccumulateOp> op;
  const auto only = [&](bool ok) {
    if (!ok)
      refuse("privatise", loop.var.name, "buffer " + buffer->name + " is not only accumulated into, by one operation");
  };
  for (const BufferAccess& a : accesses(loop.body, buffer)) {
    const Accumulate* acc = a.stmt.as<Accumulate>();
    only(acc && acc->buffer.same_as(buffer) && a.writes && (!op || *op == acc->op));
    op = acc->op;
  }
  if (!op) refuse("privatise", loop.var.name, "nothing in it accumulates into buffer " + buffer->name);
  if (is_float(buffer->dtype) && rounds(*op) && level_ == Determinism::sequential)
    refuse("privatise", loop.var.name,
           "it would change the order in which " + folds(*op) + " of " + to_string(buffer->dtype) +
               " are rounded; the kernel's level is " + level_name(level_));
  // The reduction adds the copies to every element, whichever elements the loop accesses.
  const std::vector<Expr> origin(buffer->dims.size(), Expr(0));
  if ((buffer->role == Role::out || buffer->role == Role::temp) && !filled_before(site, buffer, origin, buffer->dims))
    refuse("privatise", loop.var.name,
           "it would add to elements of buffer " + buffer->name + " that are not proved to be written earlier");

  const Bounds bounds = read_once(loop, site.scope);
  std::vector<Expr> dims{bounds.extent};
  dims.insert(dims.end(), buffer->dims.begin(), buffer->dims.end());
  const Buffer own = make_buffer(
      {.name = buffer->name + "_p", .dtype = buffer->dtype, .dims = dims, .role = Role::temp, .alignment = 64});
  const auto at = [](const Expr& first, const std::vector<Expr>& rest) {
    std::vector<Expr> index{first};
    index.insert(index.end(), rest.begin(), rest.end());
    return index;
  };
  const Expr here = index_sub(var(loop.var), bounds.begin);
  const Stmt clear = over(own->name + "_c", buffer->dims, [&](const std::vector<Expr>& e) {
    return store(own, at(here, e), identity(*op, buffer->dtype));
  });
  const Stmt body =
      redirect(loop.body, buffer,
               {own, [&](const std::vector<Expr>& index) { return at(here, index); }, false, shared_below(loop)});
  const Stmt merge = over(own->name + "_m", dims, [&](const std::vector<Expr>& e) {
    const AccumulateOp merged = *op == AccumulateOp::fma ? AccumulateOp::add : *op;
    return accumulate(buffer, {e.begin() + 1, e.end()}, merged, load(own, e));
  });
  const Stmt work = for_loop(loop.var, bounds.begin, bounds.extent, loop.kind, block({clear, body}));
  put("privatise", site, bounds.wrap(alloc(own, block({work, merge}))), line);
  return own;
}

}  // namespace gradloom::ir
