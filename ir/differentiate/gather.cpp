#include "ir/differentiate/gather.h"

#include <algorithm>

#include "ir/differentiate/element_sum.h"
#include "ir/index_math.h"
#include "ir/rewrite.h"

namespace gradloom::ir {
namespace {

class Gather {
 public:
  Gather(const Adjoint& adjoint, bool only_elementwise, Accesses& accesses)
      : adjoint_(adjoint), only_elementwise_(only_elementwise), accesses_(accesses) {}

  // `fixed`: the variables of loops around the scope that index these dims of the adjoint. False: nothing is replaced.
  bool scope(std::vector<Stmt>& parts, std::vector<Expr> fixed, const Ranges& known) {
    const std::vector<Term> terms = terms_of(parts, adjoint_.sums, accesses_);
    if (terms.empty()) return false;
    for (size_t count = terms.size(); count > 0; --count) {
      // What is left is added after the sums are stored: it stands in later nests.
      if (count < terms.size() && terms[count].nest().same_as(terms[count - 1].nest())) continue;
      if (const Stmt nest = gathered({terms.begin(), terms.begin() + count}, fixed, known, count == terms.size())) {
        ReplaceTerms replace(adjoint_.sums, accesses_);
        for (size_t i = 0; i < count; ++i) replace.dropped.insert(terms[i].stmt.get());
        replace.dropped.insert(adjoint_.zeros.get());
        replace.place = terms[count - 1].nest().get();
        replace.after = nest;
        parts = replace.of(std::move(parts));
        all = count == terms.size();
        return true;
      }
    }
    return inside(parts, terms, std::move(fixed), known);
  }
  bool all = false;  // no accumulate is left

 private:
  // All terms in one loop, each iteration of which owns a slice of the adjoint: the same within it.
  bool inside(std::vector<Stmt>& parts, const std::vector<Term>& terms, std::vector<Expr> fixed, const Ranges& known) {
    const Term& first = terms[0];
    const For* loop = first.first_loop < first.path.size() ? first.nest().as<For>() : nullptr;
    if (!loop || !runs_always(first)) return false;
    std::optional<size_t> dim;
    for (size_t d = 0; d < fixed.size() && !dim; ++d) {
      const Var* v = first.node().index[d].as<Var>();
      if (!fixed[d] && v && v->id == loop->var.id) dim = d;
    }
    if (!dim || !is_const(loop->begin, 0) || !equal(loop->extent, adjoint_.sums->dims[*dim])) return false;
    for (const Term& t : terms) {
      const Var* v = t.node().index[*dim].as<Var>();
      if (!t.nest().same_as(first.nest()) || !v || v->id != loop->var.id) return false;
    }
    Ranges within = known;
    for (size_t i = 0; i < first.first_loop; ++i)
      if (const Let* n = first.path[i].stmt.as<Let>()) within.enter(*n);
    within.enter(*loop);
    fixed[*dim] = var(loop->var);
    std::vector<Stmt> body{loop->body};
    if (!scope(body, std::move(fixed), within)) return false;
    ReplaceTerms replace(adjoint_.sums, accesses_);
    replace.dropped = {first.nest().get(), adjoint_.zeros.get()};
    replace.place = first.nest().get();
    replace.after = for_loop(loop->var, loop->begin, loop->extent, loop->kind, block(std::move(body)));
    parts = replace.of(std::move(parts));
    return true;
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
    const auto complete = [&](const Expr& e) {
      return !any_of(e, [&](const Expr& x) { return x.as<Load>() && written_by(t.nest(), x.as<Load>()->buffer); });
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

  // Also what it allocates itself: that is not there where it ends.
  bool written_by(const Stmt& nest, const Buffer& b) {
    if (accesses_.writes(nest, b)) return true;
    return b->role == Role::temp && !accesses_.reads(nest, b);
  }

  // The nest that stores these terms' sums, or nothing.
  Stmt gathered(const std::vector<Term>& terms, const std::vector<Expr>& fixed, const Ranges& known, bool all_terms) {
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
    Stmt nest = element_sum(solved, at, all_terms ? adjoint_.store : adjoint_.sums, adjoint_);
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

  const Adjoint& adjoint_;
  const bool only_elementwise_;
  Accesses& accesses_;
};

}  // namespace

bool gather(std::vector<Stmt>& scope, const Adjoint& adjoint, const Ranges& known, bool only_elementwise,
            Accesses& accesses) {
  Gather all(adjoint, only_elementwise, accesses);
  all.scope(scope, std::vector<Expr>(adjoint.sums->dims.size()), known);
  return all.all;
}

}  // namespace gradloom::ir
