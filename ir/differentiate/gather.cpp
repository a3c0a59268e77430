#include "ir/differentiate/gather.h"

#include <algorithm>

#include "gradloom/builder.h"
#include "ir/differentiate/inverse.h"
#include "ir/index_math.h"
#include "ir/rewrite.h"
#include "ir/wrappers.h"

namespace gradloom::ir {
namespace {

// An accumulate into the adjoint, below the scope.
struct Term {
  std::vector<Enclosing> path;  // outermost first
  size_t first_loop = 0;        // in the path
  Stmt stmt;
  const Accumulate& node() const { return *stmt.as<Accumulate>(); }
  const Stmt& nest() const { return first_loop < path.size() ? path[first_loop].stmt : stmt; }
};

void find_terms(const Stmt& s, const Buffer& sums, std::vector<Enclosing>& path, std::vector<Term>& terms) {
  if (!s) return;
  const auto below = [&](const Stmt& body, bool otherwise = false) {
    path.push_back({s, otherwise});
    find_terms(body, sums, path, terms);
    path.pop_back();
  };
  if (const Block* n = s.as<Block>()) {
    for (const Stmt& part : n->stmts) find_terms(part, sums, path, terms);
  } else if (const If* n = s.as<If>()) {
    below(n->then_case), below(n->else_case, true);
  } else if (is_wrapper(s)) {
    below(body_of(s));
  } else if (const Accumulate* n = s.as<Accumulate>(); n && n->buffer.same_as(sums)) {
    size_t first = 0;
    while (first < path.size() && !path[first].stmt.as<For>()) ++first;
    terms.push_back({path, first, s});
  }
}

// Drops statements that do nothing any more, and those chosen; `after`: what follows a statement.
class Replace : public Rewriter {
 public:
  std::unordered_set<const StmtNode*> dropped;
  const StmtNode* place = nullptr;
  Stmt after;

  Stmt of(const Stmt& s) {
    if (!s) return s;
    if (dropped.contains(s.get())) return placed(s, block({}));
    Stmt now = (*this)(s);
    return placed(s, is_idle(now) ? block({}) : now);
  }

 private:
  Stmt placed(const Stmt& was, const Stmt& now) const { return was.get() == place ? block({now, after}) : now; }
  static bool is_idle(const Stmt& s) {
    const auto empty = [](const Stmt& x) { return !x || (x.as<Block>() && x.as<Block>()->stmts.empty()); };
    if (const If* n = s.as<If>()) return empty(n->then_case) && empty(n->else_case);
    return is_wrapper(s) && empty(body_of(s));
  }
  Stmt rewrite(const Block& n, const Stmt&) override {
    std::vector<Stmt> parts;
    for (const Stmt& part : n.stmts) parts.push_back(of(part));
    return block(std::move(parts));
  }
  Stmt rewrite(const For& n, const Stmt&) override { return for_loop(n.var, n.begin, n.extent, n.kind, of(n.body)); }
  Stmt rewrite(const Let& n, const Stmt&) override {
    const Stmt body = of(n.body);
    return mentions(body, n.var.id) ? let(n.var, n.value, body) : body;
  }
  Stmt rewrite(const Alloc& n, const Stmt&) override { return alloc(n.buffer, of(n.body)); }
  Stmt rewrite(const Check& n, const Stmt&) override { return check(n.condition, n.position, n.argument, of(n.body)); }
  Stmt rewrite(const If& n, const Stmt&) override {
    const Stmt other = n.else_case ? of(n.else_case) : Stmt();
    return if_then(n.condition, of(n.then_case), other);
  }
  Stmt rewrite(const Store&, const Stmt& self) override { return self; }
  Stmt rewrite(const Accumulate&, const Stmt& self) override { return self; }
};

class Gather {
 public:
  Gather(const Adjoint& adjoint, bool only_elementwise) : adjoint_(adjoint), only_elementwise_(only_elementwise) {}

  // `fixed`: the variables of loops around the scope that index these dims of the adjoint.
  Gathered scope(const Stmt& s, std::vector<Expr> fixed, const Ranges& known) {
    std::vector<Term> terms;
    std::vector<Enclosing> path;
    find_terms(s, adjoint_.sums, path, terms);
    if (terms.empty()) return {s, false};
    for (size_t count = terms.size(); count > 0; --count) {
      // What is left is added after the sums are stored: it stands in later nests.
      if (count < terms.size() && terms[count].nest().same_as(terms[count - 1].nest())) continue;
      if (const Stmt nest = gathered({terms.begin(), terms.begin() + count}, fixed, known, count == terms.size())) {
        Replace replace;
        for (size_t i = 0; i < count; ++i) replace.dropped.insert(terms[i].stmt.get());
        replace.dropped.insert(adjoint_.zeros.get());
        replace.place = terms[count - 1].nest().get();
        replace.after = nest;
        return {replace.of(s), count == terms.size()};
      }
    }
    return inside(s, terms, std::move(fixed), known);
  }

 private:
  // All terms in one loop, each iteration of which owns a slice of the adjoint: the same within it.
  Gathered inside(const Stmt& s, const std::vector<Term>& terms, std::vector<Expr> fixed, const Ranges& known) {
    const Term& first = terms[0];
    const For* loop = first.first_loop < first.path.size() ? first.nest().as<For>() : nullptr;
    if (!loop || !runs_always(first)) return {s, false};
    std::optional<size_t> dim;
    for (size_t d = 0; d < fixed.size() && !dim; ++d) {
      const Var* v = first.node().index[d].as<Var>();
      if (!fixed[d] && v && v->id == loop->var.id) dim = d;
    }
    if (!dim || !is_const(loop->begin, 0) || !equal(loop->extent, adjoint_.sums->dims[*dim])) return {s, false};
    for (const Term& t : terms) {
      const Var* v = t.node().index[*dim].as<Var>();
      if (!t.nest().same_as(first.nest()) || !v || v->id != loop->var.id) return {s, false};
    }
    Ranges within = known;
    for (size_t i = 0; i < first.first_loop; ++i)
      if (const Let* n = first.path[i].stmt.as<Let>()) within.enter(*n);
    within.enter(*loop);
    fixed[*dim] = var(loop->var);
    const Gathered body = scope(loop->body, std::move(fixed), within);
    if (body.stmt.same_as(loop->body)) return {s, false};
    Replace replace;
    replace.dropped = {first.nest().get(), adjoint_.zeros.get()};
    replace.place = first.nest().get();
    replace.after = for_loop(loop->var, loop->begin, loop->extent, loop->kind, body.stmt);
    return {replace.of(s), body.all};
  }

  // Whether only lets and allocs stand around the term's nest in the scope.
  static bool runs_always(const Term& t) {
    return std::all_of(t.path.begin(), t.path.begin() + static_cast<std::ptrdiff_t>(t.first_loop),
                       [](const Enclosing& e) { return e.stmt.as<Let>() || e.stmt.as<Alloc>(); });
  }

  // What a term reads is complete, and in scope, where the last one's nest ends. Out of a nest that allocates, where
  // its loops stay as good to run.
  bool may_move(const Term& t, const Term& last, bool alloc_too) {
    if (!runs_always(t)) return false;
    for (size_t i = 0; i < t.first_loop; ++i)
      if (i >= last.first_loop || !last.path[i].stmt.same_as(t.path[i].stmt)) return false;
    const std::unordered_set<int64_t>& written = written_by(t.nest());
    const auto complete = [&](const Expr& e) {
      return !e ||
             !any_of(e, [&](const Expr& x) { return x.as<Load>() && written.contains(x.as<Load>()->buffer->id); });
    };
    const Accumulate& n = t.node();
    bool good = complete(n.value) && complete(n.factor) && complete(n.guard);
    for (size_t i = t.first_loop; i < t.path.size(); ++i) {
      const Stmt& around = t.path[i].stmt;
      if (around.as<Alloc>() && !alloc_too) return false;
      if (const Let* x = around.as<Let>()) good &= complete(x->value);
      if (const If* x = around.as<If>()) good &= complete(x->condition);
      if (const Check* x = around.as<Check>()) good &= complete(x->condition) && complete(x->position);
      if (const For* x = around.as<For>()) good &= complete(x->begin) && complete(x->extent);
    }
    return good;
  }

  const std::unordered_set<int64_t>& written_by(const Stmt& nest) {
    const auto [slot, fresh] = written_.try_emplace(nest.get());
    if (fresh)
      walk(nest, [&](const Stmt& s) {
        if (const Store* n = s.as<Store>()) slot->second.insert(n->buffer->id);
        if (const Accumulate* n = s.as<Accumulate>()) slot->second.insert(n->buffer->id);
        if (const Reduce* n = s.as<Reduce>()) slot->second.insert(n->buffer->id);
      });
    return slot->second;
  }

  struct Solved {
    const Term* term;
    Inverse inverse;
    Expr guard;  // the accumulate's own, absent where it is proved
    bool inside_conditions() const {
      return std::any_of(term->path.begin(), term->path.end(),
                         [](const Enclosing& e) { return e.stmt.as<If>() || e.stmt.as<Check>(); });
    }
    // Under conditions in addition to the inverse's guards.
    bool conditional() const { return guard || inside_conditions(); }
    // One value, which its guard selects: a guard on where it is added, not on what it reads.
    bool plain() const { return !inside_conditions() && inverse.guards.empty() && inverse.summed.empty(); }
  };

  // The nest that stores these terms' sums, or nothing.
  Stmt gathered(const std::vector<Term>& terms, const std::vector<Expr>& fixed, const Ranges& known, bool all) {
    Ranges elements = known;
    for (size_t i = 0; i < terms.back().first_loop; ++i)
      if (const Let* n = terms.back().path[i].stmt.as<Let>()) elements.enter(*n);
    std::vector<Expr> at = fixed;
    std::vector<For> dims;
    for (size_t d = 0; d < at.size(); ++d) {
      if (at[d]) continue;
      if (is_const(adjoint_.sums->dims[d], 1)) {
        at[d] = 0;
        continue;
      }
      const Var u = make_var(name_of(terms.back(), d));
      at[d] = var(u);
      const Stmt loop = for_loop(u, 0, adjoint_.sums->dims[d], ForKind::serial, block({}));
      dims.push_back(*loop.as<For>());
      elements.enter(dims.back());
    }
    std::vector<Solved> solved;
    std::vector<Stmt> loops;
    for (const Term& t : terms) {
      std::optional<Inverse> inverse = may_move(t, terms.back(), adjoint_.order == SumOrder::tree)
                                           ? inverse_of(t, at, elements, loops)
                                           : std::nullopt;
      if (!inverse) return {};
      solved.push_back({&t, std::move(*inverse), t.node().guard});
      Solved& s = solved.back();
      Ranges inside = elements;
      for (const For* f : s.inverse.summed) inside.enter(*f);
      for (const Expr& g : s.inverse.guards) inside.assume(g);
      if (s.guard && proves(inside, substitute(s.guard, s.inverse.values))) s.guard = {};
      if (only_elementwise_ && !solved.back().plain() && !declares_total()) return {};
    }
    std::reverse(solved.begin(), solved.end());  // in the forward nest's order
    Stmt nest = element(solved, at, all ? adjoint_.store : adjoint_.sums);
    for (size_t d = dims.size(); d-- > 0;)
      nest = for_loop(dims[d].var, dims[d].begin, dims[d].extent, ForKind::serial, nest);
    return refresh(nest);  // the same statements may stand elsewhere
  }
  // Whether its sum is of one element, in a tree: over all iterations of the loops in any case.
  bool declares_total() const {
    const std::vector<Expr>& dims = adjoint_.sums->dims;
    return adjoint_.order == SumOrder::tree &&
           std::all_of(dims.begin(), dims.end(), [](const Expr& dim) { return is_const(dim, 1); });
  }
  static std::string name_of(const Term& t, size_t d) {
    const Var* v = t.node().index[d].as<Var>();
    return v ? v->name : "u";
  }

  // A value with the lets of the term's nest put in; nothing where that is large.
  static Expr through_lets(const Expr& e, const Substitution& lets) {
    constexpr int most_nodes = 200;
    Expr result = e;
    for (size_t round = 0; round <= lets.size() && result; ++round) {
      const bool left = any_of(result, [&](const Expr& x) { return x.as<Var>() && lets.contains(x.as<Var>()->id); });
      if (!left) return result;
      result = substitute(result, lets);
      if (result.node().tree.nodes > most_nodes) return {};
    }
    return {};
  }

  // `loops`: where the statements of loops with bounds of their own are kept.
  static std::optional<Inverse> inverse_of(const Term& t, const std::vector<Expr>& at, const Ranges& known,
                                           std::vector<Stmt>& loops) {
    Substitution lets;
    for (size_t i = t.first_loop; i < t.path.size(); ++i)
      if (const Let* n = t.path[i].stmt.as<Let>(); n && n->value.node().tree.nodes <= 64) lets[n->var.id] = n->value;
    const size_t first = loops.size();
    for (size_t i = t.first_loop; i < t.path.size(); ++i) {
      const For* f = t.path[i].stmt.as<For>();
      if (!f) continue;
      const Expr begin = through_lets(f->begin, lets), extent = through_lets(f->extent, lets);
      if (!begin || !extent || has_load(begin) || has_load(extent)) return std::nullopt;
      for (size_t k = first; k < loops.size(); ++k)
        if (const int64_t id = loops[k].as<For>()->var.id; mentions(begin, id) || mentions(extent, id))
          return std::nullopt;
      loops.push_back(for_loop(f->var, begin, extent, ForKind::serial, block({})));
    }
    std::vector<const For*> own;
    for (size_t k = first; k < loops.size(); ++k) own.push_back(loops[k].as<For>());
    std::vector<Expr> index;
    for (const Expr& i : t.node().index) {
      index.push_back(through_lets(i, lets));
      if (!index.back() || has_load(index.back())) return std::nullopt;  // a scatter
    }
    return invert(own, index, at, known);
  }

  // The loops that are summed over, under which all guards hold, and the statements around the term in these.
  static Stmt around(const Solved& s, Stmt inner) {
    const Term& t = *s.term;
    for (size_t i = t.path.size(); i-- > t.first_loop;)
      if (!t.path[i].stmt.as<For>() && !t.path[i].stmt.as<Alloc>()) inner = with_body(t.path[i], inner);
    if (const Expr guard = guard_of(s)) inner = if_then(guard, inner);
    for (size_t i = s.inverse.summed.size(); i-- > 0;) {
      const For& n = *s.inverse.summed[i];
      inner = for_loop(n.var, n.begin, n.extent, ForKind::serial, inner);
    }
    return inner;
  }
  static Expr guard_of(const Solved& s) {
    Expr all;
    for (const Expr& g : s.inverse.guards) all = both(all, g);
    return all;
  }

  // What was only widened is itself again, a NaN's bits, too.
  static Expr rounded(DType to, const Expr& total) {
    const Cast* widened = total.as<Cast>();
    return widened && widened->value.dtype() == to && is_storage_float(to) ? widened->value : cast(to, total);
  }

  Stmt element(const std::vector<Solved>& terms, const std::vector<Expr>& at, const Buffer& to) const {
    const Type sum{adjoint_.sums->dtype, 1};
    const auto stored = [&](const Expr& total) { return store(to, at, rounded(to->dtype, total)); };
    if (std::all_of(terms.begin(), terms.end(), [](const Solved& s) { return s.plain(); }))
      return plain_sum(terms, stored);
    if (terms.size() == 1 && terms[0].inverse.summed.empty() && !terms[0].conditional()) {
      const Solved& s = terms[0];
      if (const Expr value = guarded_load(s)) return stored(value);
      const Stmt value = substitute(around(s, stored(value_of(s))), s.inverse.values);
      const If& guarded = *value.as<If>();
      return if_then(guarded.condition, guarded.then_case, stored(zero(sum)));
    }
    if (adjoint_.order == SumOrder::tree && std::all_of(terms.begin(), terms.end(), is_declarable))
      return declared_sums(terms, at, to, stored);
    const Buffer acc = make_buffer({.name = "acc", .dtype = sum.dtype, .dims = {1}, .space = Space::registers});
    std::vector<Stmt> parts{store(acc, {0}, zero(sum))};
    for (const Solved& s : terms) {
      const Accumulate& n = s.term->node();
      const Stmt part = around(s, accumulate(acc, {0}, n.op, n.value, n.factor, s.guard));
      parts.push_back(substitute(part, s.inverse.values));
    }
    parts.push_back(stored(load(acc, {0})));
    return alloc(acc, block(std::move(parts)));
  }
  // What is only read where the guards hold: by a load with that guard, elsewhere 0. Absent for any other value.
  static Expr guarded_load(const Solved& s) {
    const auto in_nest = s.term->path.begin() + static_cast<std::ptrdiff_t>(s.term->first_loop);
    const bool lets = std::any_of(in_nest, s.term->path.end(), [](const Enclosing& e) { return e.stmt.as<Let>(); });
    const Expr value = value_of(s);
    const Cast* widened = value.as<Cast>();
    const Load* n = (widened ? widened->value : value).as<Load>();
    if (!n || n->guard || lets) return {};
    // Its index is evaluated everywhere.
    for (const Expr& i : n->index)
      if (has_load(i) || has_variable_divisor(i)) return {};
    const Expr all = load(n->buffer, n->index, guard_of(s), zero({n->buffer->dtype, 1}));
    const Expr read = substitute(all, s.inverse.values);
    return widened ? cast(value.dtype(), read) : read;
  }
  // One value after the other, each with lets of its own; those that are equal are shared.
  static Stmt plain_sum(const std::vector<Solved>& terms, const std::function<Stmt(const Expr&)>& stored) {
    struct Bound {
      const StmtNode* let;
      Expr value;
      Var var;
    };
    std::vector<Bound> lets;
    Expr total;
    for (const Solved& s : terms) {
      Substitution own = s.inverse.values;
      for (size_t i = s.term->first_loop; i < s.term->path.size(); ++i) {
        const Stmt& around = s.term->path[i].stmt;
        const Let* n = around.as<Let>();
        if (!n) continue;
        const Expr value = substitute(n->value, own);
        const auto same = std::find_if(lets.begin(), lets.end(),
                                       [&](const Bound& b) { return b.let == around.get() && equal(b.value, value); });
        const Var v = same == lets.end() ? make_var(n->var.name, n->var.type) : same->var;
        if (same == lets.end()) lets.push_back({around.get(), value, v});
        own[n->var.id] = var(v);
      }
      Expr value = substitute(value_of(s), own);
      if (s.guard) value = select(substitute(s.guard, own), value, zero(value.type()));
      total = total ? total + value : value;
    }
    Stmt result = stored(total);
    for (size_t i = lets.size(); i-- > 0;)
      if (mentions(result, lets[i].var.id)) result = let(lets[i].var, lets[i].value, result);
    return result;
  }

  // Whether it is one value, or a sum over loops without checks.
  static bool is_declarable(const Solved& s) {
    if (s.plain()) return true;
    const bool checks = std::any_of(s.term->path.begin() + static_cast<std::ptrdiff_t>(s.term->first_loop),
                                    s.term->path.end(), [](const Enclosing& e) { return e.stmt.as<Check>(); });
    return !checks && !s.inverse.summed.empty();
  }
  Stmt declared_sums(const std::vector<Solved>& terms, const std::vector<Expr>& at, const Buffer& to,
                     const std::function<Stmt(const Expr&)>& stored) const {
    if (terms.size() == 1 && to->dtype == adjoint_.sums->dtype) return declared_sum(terms[0], to, at);
    std::vector<Stmt> parts;
    std::vector<Buffer> totals;
    Expr total;
    for (const Solved& s : terms) {
      totals.push_back(
          make_buffer({.name = "total", .dtype = adjoint_.sums->dtype, .dims = {1}, .space = Space::registers}));
      const auto put = [&](const Expr& value) { return store(totals.back(), {0}, value); };
      parts.push_back(s.plain() ? plain_sum({s}, put) : declared_sum(s, totals.back(), {0}));
      const Expr part = load(totals.back(), {0});
      total = total ? total + part : part;
    }
    parts.push_back(stored(total));
    Stmt result = block(std::move(parts));
    for (size_t i = totals.size(); i-- > 0;) result = alloc(totals[i], result);
    return result;
  }
  static Stmt declared_sum(const Solved& s, const Buffer& to, const std::vector<Expr>& at) {
    const Accumulate& n = s.term->node();
    Reduce r{.ranges = {},
             .buffer = to,
             .index = at,
             .op = n.op,
             .order = {},
             .lets = {},
             .value = {},
             .factor = {},
             .guard = {}};
    Substitution own;
    for (const For* f : s.inverse.summed) {
      const Var v = make_var(f->var.name, f->var.type);
      r.ranges.push_back({v, f->begin, f->extent});
      own[f->var.id] = var(v);
    }
    const Substitution summed = own;
    for (const auto& [id, value] : s.inverse.values) own[id] = substitute(value, summed);
    r.guard = substitute(guard_of(s), own);
    // What depends on a definition selects the value: the guard is evaluated before them.
    Expr mask;
    const auto restrict = [&](const Expr& condition) {
      const bool defined = std::any_of(r.lets.begin(), r.lets.end(),
                                       [&](const Reduce::Definition& d) { return mentions(condition, d.var.id); });
      Expr& all = defined ? mask : r.guard;
      all = both(all, condition);
    };
    for (size_t i = s.term->first_loop; i < s.term->path.size(); ++i) {
      const Stmt& x = s.term->path[i].stmt;
      if (const Let* l = x.as<Let>()) {
        const Var v = make_var(l->var.name, l->var.type);
        r.lets.push_back({v, substitute(l->value, own)});
        own[l->var.id] = var(v);
      } else if (const If* c = x.as<If>()) {
        restrict(substitute(s.term->path[i].otherwise ? unary(UnaryOp::bit_not, c->condition) : c->condition, own));
      }
    }
    if (s.guard) restrict(substitute(s.guard, own));
    r.value = substitute(n.value, own);
    if (n.factor) r.factor = substitute(n.factor, own);
    if (mask) r.value = select(mask, r.value, zero(r.value.type()));
    r.order = SumOrder::in_tree(is_contiguous(r) ? 256 : 16);
    return reduce(std::move(r));
  }
  // Whether of what moves along the innermost variable more is read along memory than across it.
  static bool is_contiguous(const Reduce& r) {
    const Expr last = var(r.ranges.back().var);
    int along = 0, across = 0;
    const auto of = [&](const Expr& e) {
      if (!e) return;
      walk(e, [&](const Expr& x) {
        const Load* l = x.as<Load>();
        for (size_t d = 0; l && d < l->index.size(); ++d)
          if (linear(l->index[d]).coefficient(last) != 0) ++(d + 1 == l->index.size() ? along : across);
      });
    };
    for (const Reduce::Definition& d : r.lets) of(d.value);
    of(r.value), of(r.factor);
    return along > across;
  }

  static Expr value_of(const Solved& s) {
    const Accumulate& n = s.term->node();
    return n.op == AccumulateOp::fma ? n.value * n.factor : n.value;
  }

  const Adjoint& adjoint_;
  const bool only_elementwise_;
  std::unordered_map<const StmtNode*, std::unordered_set<int64_t>> written_;  // by the nests of the scope, which stay
};

}  // namespace

Gathered gather(const Stmt& scope, const Adjoint& adjoint, const Ranges& known, bool only_elementwise) {
  return Gather(adjoint, only_elementwise).scope(scope, std::vector<Expr>(adjoint.sums->dims.size()), known);
}

}  // namespace gradloom::ir
