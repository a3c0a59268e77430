#include "ir/analysis/access.h"

#include <algorithm>

#include "ir/analysis/scoped_walk.h"
#include "ir/reduction.h"
#include "ir/rewrite.h"

namespace gradloom::ir {
namespace {

class Collector : public ScopedWalk<Collector> {
 public:
  Collector(const For& loop, const Ranges& scope)
      : ScopedWalk(scope), body_(loop.body), loop_var_(loop.var), loop_(loop.var.id) {
    walk(loop.body, [&](const Stmt& s) {
      if (const Store* st = s.as<Store>()) written_.insert(st->buffer->id);
      if (const Accumulate* ac = s.as<Accumulate>()) written_.insert(ac->buffer->id);
      if (const Reduce* re = s.as<Reduce>()) written_.insert(re->buffer->id);
      if (const Alloc* al = s.as<Alloc>()) private_.insert(al->buffer->id);
    });
    inside_.insert(loop_);
    tied_.insert(loop_);
    scope_.enter(loop);
  }
  std::vector<Access> take() { return std::move(found_); }

 private:
  friend ScopedWalk;
  using ScopedWalk::visit;
  void visit(const For& n, const Stmt&) {
    reads(n.begin), reads(n.extent), ++statement_;
    if (tied(n.begin)) tied_.insert(n.var.id);
    inside_.insert(n.var.id);
    ++depth_;
    below(n);
    --depth_;
  }
  void visit(const Block& n, const Stmt& self) {
    if (!self.same_as(body_)) return below(n);
    for (const Stmt& s : n.stmts) (*this)(s), ++part_;
  }
  void visit(const Let& n, const Stmt&) {
    reads(n.value), ++statement_;
    if (varies(n.value)) inside_.insert(n.var.id);
    if (tied(n.value)) tied_.insert(n.var.id);
    below(n);
  }
  void visit(const If& n, const Stmt&) {
    reads(n.condition), ++statement_;
    below(n);
  }
  void visit(const Check& n, const Stmt&) {
    reads(n.condition), reads(n.position), ++statement_;
    below(n);
  }
  void visit(const Evaluate& n, const Stmt&) {
    const Intrinsic* i = n.value.as<Intrinsic>();
    if (!i || i->op != IntrinsicOp::prefetch)
      reads(n.value);
    else
      // A prefetch does not read its target, but it does read the index.
      for (const Expr& index : i->args) reads(index);
    ++statement_;
  }
  void visit(const Store& n, const Stmt&) {
    for (const Expr& i : n.index) reads(i);
    reads(n.value), reads(n.guard);
    add(n.buffer, n.index, n.guard, {.kind = Access::store, .ordered = n.ordered});
    ++statement_;
  }
  void visit(const Accumulate& n, const Stmt&) {
    for (const Expr& i : n.index) reads(i);
    reads(n.value), reads(n.factor), reads(n.guard);
    add(n.buffer, n.index, n.guard, {.kind = Access::accumulate, .atomic = n.atomic, .ordered = n.ordered, .op = n.op});
    ++statement_;
  }

  // What its loops access, in whatever order.
  void visit(const Reduce& n, const Stmt&) { (*this)(in_loops(n)); }

  void reads(const Expr& e) {
    if (!e) return;
    walk(e, [&](const Expr& x) {
      if (const Load* l = x.as<Load>()) add(l->buffer, l->index, l->guard, {.kind = Access::load});
    });
  }

  void add(const Buffer& buffer, const std::vector<Expr>& index, const Expr& guard, Access access) {
    if (!written_.contains(buffer->id) || private_.contains(buffer->id)) return;
    const Ranges::Scope scope(scope_, guard);
    access.buffer = buffer;
    // The access must record whatever may differ between iterations.
    for (const Expr& i : index) {
      const Linear l = scope_.form(i, loop_);
      const std::optional<IndexForm> whole = multiple_window(l);
      access.index.push_back(whole ? *whole : form(l, 0));
    }
    if (windowed_) {
      windows_ = false;
      for (const Expr& i : index) access.plain.push_back(form(scope_.form(i, loop_), 0));
      windows_ = true, windowed_ = false;
    }
    access.iterations = scope_.of(var(loop_var_));
    access.statement = statement_;
    access.part = part_;
    access.inner_loop = depth_ > 0;
    found_.push_back(std::move(access));
  }

  bool fixed(const Buffer& b) const { return !written_.contains(b->id) && !private_.contains(b->id); }

  // Whether an index denotes the same address whenever it is evaluated within one iteration.
  bool fixed(const std::vector<Expr>& index) const {
    return std::none_of(index.begin(), index.end(), [&](const Expr& i) {
      return any_of(i, [&](const Expr& x) { return x.as<Load>() && !fixed(x.as<Load>()->buffer); });
    });
  }

  bool varies(const Expr& e) const {
    return e.lanes() > 1 || any_of(e, [&](const Expr& x) {
             const Var* v = x.as<Var>();
             const Load* l = x.as<Load>();
             return (v && inside_.contains(v->id)) || (l && !fixed(l->buffer));
           });
  }
  // Whether the value depends on the iteration, so that bounds by it distinguish iterations.
  bool tied(const Expr& e) const {
    return any_of(e, [&](const Expr& x) { return x.as<Var>() && tied_.contains(x.as<Var>()->id); });
  }
  bool tied(const Linear& l) const {
    return std::any_of(l.terms.begin(), l.terms.end(), [&](const auto& t) { return tied(t.first); });
  }
  bool varies(const IndexForm& f) const {
    return std::any_of(f.terms.begin(), f.terms.end(), [](const auto& t) { return t.first->varies; });
  }

  // An opaque value: equal to no other.
  static IndexForm unknown() { return {0, {{std::make_shared<IndexTerm>(), 1}}}; }

  // to += from * factor; false on overflow.
  static bool append(IndexForm& to, const IndexForm& from, int64_t factor) {
    const auto add_scaled = [factor](int64_t& sum, int64_t value) {
      int64_t scaled;
      return !__builtin_mul_overflow(value, factor, &scaled) && !__builtin_add_overflow(sum, scaled, &sum);
    };
    bool fits = add_scaled(to.constant, from.constant);
    for (const auto& [term, coefficient] : from.terms) {
      auto same = std::find_if(to.terms.begin(), to.terms.end(), [&, t = term](const auto& o) {
        return o.first == t || (t->expr && o.first->expr && equal(o.first->expr, t->expr));
      });
      if (same == to.terms.end()) same = to.terms.insert(same, {term, 0});
      fits &= add_scaled(same->second, coefficient) && same->second >= -IndexForm::largest &&
              same->second <= IndexForm::largest;
    }
    return fits;
  }

  IndexForm form(const Linear& l, int depth) {
    IndexForm result{l.constant, {}};
    bool fits = l.exact;
    for (const auto& [expr, coefficient] : l.terms) fits = fits && append(result, term(expr, depth), coefficient);
    return fits ? result : unknown();
  }

  IndexForm single(IndexTerm t) { return {0, {{std::make_shared<IndexTerm>(std::move(t)), 1}}}; }

  IndexForm term(const Expr& expr, int depth) {
    IndexTerm t;
    t.expr = expr;
    t.range = scope_.of(expr);
    t.varies = varies(expr);
    const Var* v = expr.as<Var>();
    if (depth > 3 || (v && v->id == loop_)) return single(std::move(t));
    // What is the same in all iterations, too: guards may leave it to one of them.
    if (std::optional<IndexForm> offset = windows_ ? window(t, depth) : std::nullopt) return *offset;
    if (!t.varies) return single(std::move(t));
    if (const Load* l = scope_.load_of(expr);
        l && l->buffer->facts.injective && !l->guard && fixed(l->buffer) && fixed(l->index)) {
      t.injective = l->buffer;
      for (const Expr& i : l->index) t.elements.push_back(form(scope_.form(i), depth + 1));
    }
    if (const Binary* b = expr.as<Binary>(); b && (b->op == BinaryOp::floor_div || b->op == BinaryOp::floor_mod))
      // The divisor is the same for all lanes: only the dividend varies.
      if (const Broadcast* all = b->b.as<Broadcast>(); !varies(all ? all->value : b->b)) {
        t.divisor = b->b;
        t.is_mod = b->op == BinaryOp::floor_mod;
        t.dividend = form(scope_.form(b->a), depth + 1);
      }
    return single(std::move(t));
  }

  // Symbolic bounds of a multiple of a term: low <= multiple <= low + width.
  struct Window {
    Linear low;
    int64_t width = 0;
  };
  // The narrowest window of e * factor whose bounds depend on the iteration. `each` sees every such pair of bounds.
  template <class Each>
  std::optional<Window> narrowest(const Expr& e, int64_t factor, Each each) {
    std::optional<Window> best;
    const std::vector<Linear>& assumed = scope_.assumed();
    for (const Linear& lower : assumed) {
      if (lower.coefficient(e) != factor) continue;
      Linear low;
      low.add(lower, -1);
      low.add(e, factor);
      if (!tied(low) || rounded_down(e, low)) continue;
      for (const Linear& upper : assumed) {
        if (upper.coefficient(e) != -factor) continue;
        Linear high = upper;
        high.add(e, factor);
        each(low, high);
        high.add(low, -1);
        const Range width = scope_.of(high);
        if (!width.max || *width.max < 0 || (best && best->width <= *width.max)) continue;
        best = Window{low, *width.max};
      }
    }
    return best;
  }
  IndexForm in_window(const Window& w, int depth) {
    windowed_ = true;
    IndexForm result = form(w.low, depth + 1);
    IndexTerm rest;
    rest.range = {0, w.width};
    return append(result, single(std::move(rest)), 1) ? result : unknown();
  }
  // A term between two such bounds is the lower one plus a small remainder; or it lies in a segment of an offsets
  // array.
  std::optional<IndexForm> window(IndexTerm& t, int depth) {
    const std::optional<Window> best =
        narrowest(t.expr, 1, [&](const Linear& low, const Linear& high) { own(t, low, high, depth); });
    return best && !t.offsets ? std::optional(in_window(*best, depth)) : std::nullopt;
  }
  // The same of an index that is a multiple of one term: its guards bound the multiple.
  std::optional<IndexForm> multiple_window(const Linear& l) {
    if (!windows_ || !l.exact || l.terms.size() != 1 || l.terms[0].second == 1) return std::nullopt;
    std::optional<Window> best = narrowest(l.terms[0].first, l.terms[0].second, [](const Linear&, const Linear&) {});
    if (!best) return std::nullopt;
    best->low.constant += l.constant;
    return in_window(*best, 0);
  }

  // Rejects bounds that only round a quotient or remainder down again: they lose information.
  static bool rounded_down(const Expr& e, const Linear& low) {
    const auto divides = [](const Expr& x) {
      const Binary* b = x.as<Binary>();
      return b && (b->op == BinaryOp::floor_div || b->op == BinaryOp::floor_mod) ? b : nullptr;
    };
    return divides(e) && std::any_of(low.terms.begin(), low.terms.end(),
                                     [&](const auto& t) { return divides(t.first) && equal(divides(t.first)->a, e); });
  }

  void own(IndexTerm& t, const Linear& low, const Linear& high, int depth) {
    if (t.offsets || !low.exact || !high.exact || low.terms.size() != 1 || high.terms.size() != 1 ||
        low.constant != 0 || high.constant > -1)
      return;
    if (low.terms[0].second != 1 || high.terms[0].second != 1) return;
    const Load *a = scope_.load_of(low.terms[0].first), *b = scope_.load_of(high.terms[0].first);
    if (!a || !b || a->guard || b->guard || !a->buffer.same_as(b->buffer) || !a->buffer->facts.nondecreasing ||
        !fixed(a->buffer) || !fixed(a->index) || !fixed(b->index))
      return;
    const size_t last = a->index.size() - 1;
    for (size_t d = 0; d < last; ++d)
      if (varies(a->index[d]) || !equal(a->index[d], b->index[d])) return;
    const Linear segment = scope_.form(a->index[last]);
    Linear step = scope_.form(b->index[last]);
    step.add(segment, -1);
    if (!step.exact || !step.terms.empty() || step.constant != 1) return;
    t.offsets = a->buffer;
    t.segment = form(segment, depth + 1);
  }

  const Stmt body_;
  Var loop_var_;
  int64_t loop_;
  std::unordered_set<int64_t> written_, private_;
  std::unordered_set<int64_t> inside_;  // variables that may differ between iterations
  std::unordered_set<int64_t> tied_;    // variables derived from the loop's variable
  std::vector<Access> found_;
  int statement_ = 0, depth_ = 0;
  size_t part_ = 0;
  bool windows_ = true, windowed_ = false;  // whether terms may be replaced by their bounds, and whether one was
};

}  // namespace

std::vector<Access> accesses(const For& loop, const Ranges& scope) {
  Collector collector(loop, scope);
  collector(loop.body);
  return collector.take();
}

}  // namespace gradloom::ir
