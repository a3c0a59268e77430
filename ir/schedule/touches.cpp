#include "ir/schedule/touches.h"

#include <algorithm>

#include "gradloom/target.h"
#include "ir/analysis/ranges.h"
#include "ir/index_math.h"

namespace gradloom::ir {
namespace {

constexpr int64_t unrolled_lines = 8;

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

}  // namespace

Expr Touches::rewrite(const Load& n, const Expr& self) {
  add(n.buffer, n.index);
  return Rewriter::rewrite(n, self);
}

Stmt Touches::rewrite(const Accumulate& n, const Stmt& self) {
  add(n.buffer, n.index);
  return Rewriter::rewrite(n, self);
}

Stmt Touches::rewrite(const Store& n, const Stmt& self) {
  if (stores_) add(n.buffer, n.index);
  return Rewriter::rewrite(n, self);
}

Stmt Touches::rewrite(const For& n, const Stmt& self) {
  loops_.push_back(&n);
  (*this)(n.body);
  loops_.pop_back();
  return self;
}

void Touches::enter(const Let& n) {
  const Expr value = expand(n.value);
  if (conditions_ > 0 && has_load(value)) conditional_lets_.push_back(n.var.id);
  lets_[n.var.id] = value;
}

Stmt Touches::rewrite(const Let& n, const Stmt& self) {
  enter(n);
  (*this)(n.value);
  (*this)(n.body);
  return self;
}

Stmt Touches::rewrite(const If& n, const Stmt& self) {
  (*this)(n.condition);
  ++conditions_;
  (*this)(n.then_case);
  (*this)(n.else_case);
  --conditions_;
  return self;
}

Stmt Touches::rewrite(const Check& n, const Stmt& self) {
  (*this)(n.condition);
  ++conditions_;
  (*this)(n.body);
  --conditions_;
  return self;
}

bool Touches::loaded_under_condition(const Expr& e) const {
  return (conditions_ > 0 && has_load(e)) ||
         std::any_of(conditional_lets_.begin(), conditional_lets_.end(), [&](int64_t id) { return mentions(e, id); });
}

void Touches::add(const Buffer& b, const std::vector<Expr>& index) {
  if (!b.same_as(target_)) return;
  Touch t;
  for (const Expr& i : index) {
    t.conditional_load |= loaded_under_condition(i);
    t.index.push_back(first_lane(expand(i)));
  }
  std::vector<Expr> used = t.index;
  for (size_t i = loops_.size(); i-- > 0;) {
    const For* f = loops_[i];
    const bool needed = std::any_of(used.begin(), used.end(), [&](const Expr& e) { return mentions(e, f->var.id); });
    (needed ? t.inner : t.skipped).push_back(f);
    if (!needed) continue;
    for (const Expr* bound : {&f->begin, &f->extent}) {
      t.conditional_load |= loaded_under_condition(*bound);
      used.push_back(expand(*bound));
    }
  }
  std::reverse(t.inner.begin(), t.inner.end());
  const bool known = std::any_of(touches_.begin(), touches_.end(), [&](const Touch& o) {
    return std::equal(o.index.begin(), o.index.end(), t.index.begin(), equal);
  });
  if (!known) touches_.push_back(std::move(t));
}

Touches touches_of(const Stmt& body, const Buffer& buffer, const std::vector<const Let*>& around) {
  for (const bool stores : {false, true}) {
    Touches touches(buffer, stores);
    for (const Let* l : around) touches.enter(*l);
    touches(body);
    if (stores || !touches.all().empty()) return touches;
  }
  return {buffer, true};
}

Stmt prefetch_nest(const Buffer& buffer, const Touch& touch, const Substitution& moved, const Expr& guard,
                   const Touches& context, int level) {
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

}  // namespace gradloom::ir
