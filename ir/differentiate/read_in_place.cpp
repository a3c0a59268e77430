#include "ir/differentiate/read_in_place.h"

#include <algorithm>
#include <optional>

#include "ir/rewrite.h"

namespace gradloom::ir {
namespace {

constexpr int most_nodes = 100;  // of a value

// for vars: buffer[vars] = value.
struct Fill {
  std::vector<Var> vars;
  Expr value;
};
std::optional<Fill> as_fill(const Stmt& nest) {
  Fill fill;
  Substitution lets;
  Stmt s = nest;
  for (; s.as<For>(); s = s.as<For>()->body) fill.vars.push_back(s.as<For>()->var);
  for (; s.as<Let>(); s = s.as<Let>()->body) lets[s.as<Let>()->var.id] = substitute(s.as<Let>()->value, lets);
  const Store* store = s.as<Store>();
  if (!store || store->guard || store->index.size() != fill.vars.size()) return std::nullopt;
  for (size_t d = 0; d < fill.vars.size(); ++d)
    if (const Var* v = store->index[d].as<Var>(); !v || v->id != fill.vars[d].id) return std::nullopt;
  fill.value = substitute(store->value, lets);
  return fill;
}

struct InPlace : Rewriter {
  InPlace(const Buffer& b, const Fill& f, Accesses& known) : of(b), fill(f), accesses(known) {}
  using Rewriter::rewrite;
  Stmt rewrite(const Block& n, const Stmt& self) override {
    return accesses.reads(self, of) ? Rewriter::rewrite(n, self) : self;
  }
  Stmt rewrite(const For& n, const Stmt& self) override {
    ++loops;
    const Stmt result = Rewriter::rewrite(n, self);
    --loops;
    return result;
  }
  Stmt rewrite(const Reduce& n, const Stmt& self) override {
    loops += n.ranges.size();
    const Stmt result = Rewriter::rewrite(n, self);
    loops -= n.ranges.size();
    return result;
  }
  Expr rewrite(const Load& n, const Expr& self) override {
    if (!n.buffer.same_as(of)) return Rewriter::rewrite(n, self);
    ++reads;
    good &= !n.guard && loops == fill.vars.size();
    Substitution at;
    for (size_t d = 0; d < fill.vars.size(); ++d) at[fill.vars[d].id] = (*this)(n.index[d]);
    return substitute(fill.value, at);
  }
  const Buffer of;
  const Fill& fill;
  Accesses& accesses;
  size_t loops = 0;
  int reads = 0;
  bool good = true;
};

}  // namespace

Stmt read_in_place(const Stmt& s, const Buffer& buffer, Accesses& accesses) {
  const Block* all = s.as<Block>();
  if (!all) return s;
  const auto fills = [&](const Stmt& x) { return accesses.writes(x, buffer); };
  const auto nest = std::find_if(all->stmts.begin(), all->stmts.end(), fills);
  if (nest == all->stmts.end() || std::any_of(nest + 1, all->stmts.end(), fills)) return s;
  const std::optional<Fill> fill = as_fill(*nest);
  if (!fill || fill->value.node().tree.nodes > most_nodes) return s;
  const Stmt before = block({all->stmts.begin(), nest}), after = block({nest + 1, all->stmts.end()});
  if (accesses.reads(before, buffer)) return s;
  if (any_of(fill->value, [&](const Expr& e) { return e.as<Load>() && accesses.writes(after, e.as<Load>()->buffer); }))
    return s;
  InPlace in_place(buffer, *fill, accesses);
  const Stmt result = in_place(after);
  return in_place.reads == 1 && in_place.good ? block({before, result}) : s;
}

}  // namespace gradloom::ir
