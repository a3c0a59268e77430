#include "ir/schedule/scatter.h"

#include <algorithm>
#include <unordered_set>

#include "gradloom/text.h"
#include "ir/index_math.h"
#include "ir/rewrite.h"
#include "ir/wrappers.h"

namespace gradloom::ir {
namespace {

class Match {
 public:
  Match(const std::string& step, const Site& site, const Buffer& buffer)
      : step_(step), loop_(*site.loop), buffer_(buffer), known_(site.inside()) {}

  Scatter take() {
    require_serial(step_, loop_);
    require_outside(step_, loop_, buffer_);
    collect();
    if (any_of(loop_.body, [&](const Expr& e) { return e.as<Load>() && e.as<Load>()->buffer.same_as(buffer_); }))
      fail("it reads buffer " + buffer_->name);
    divide();
    find_destination();
    return std::move(out_);
  }

 private:
  [[noreturn]] void fail(const std::string& why) const { refuse(step_, loop_.var.name, why); }
  using Ids = std::unordered_set<int64_t>;
  static bool mentions_any(const Expr& e, const Ids& ids) {
    return any_of(e, [&](const Expr& x) { return x.as<Var>() && ids.contains(x.as<Var>()->id); });
  }
  static bool own_mentions(const Stmt& s, const Ids& ids) {
    return any_of_own(s, [&](const Expr& x) { return x.as<Var>() && ids.contains(x.as<Var>()->id); });
  }

  void collect() {
    Stmt s = loop_.body;
    for (; is_wrapper(s) && !s.as<Alloc>(); s = body_of(s)) chain_.push_back(s);
    update_ = s.as<Accumulate>();
    if (!update_ || !update_->buffer.same_as(buffer_)) fail("it does more than accumulate into " + buffer_->name);
    for (const Expr& i : update_->index)
      if (i.lanes() > 1) fail("buffer " + buffer_->name + " is accessed by vectors");
    if (const Expr& guard = update_->guard; guard && guard.lanes() > 1)
      fail("buffer " + buffer_->name + " is accessed by vectors");
  }

  // What depends on a loop inside stays in the tail, and what must not be evaluated where it was not: in a loop that
  // may run no iteration, or under a condition that stays there.
  void divide() {
    bool conditional = false;
    for (const Stmt& s : chain_) {
      const auto defined_anywhere = [](const Expr& e) { return !e.as<Load>(); };
      bool movable = !own_mentions(s, inner_) && !s.as<For>();
      if (conditional && (s.as<Check>() || any_of_own(s, [&](const Expr& e) { return !defined_anywhere(e); }) ||
                          divides_by_variable(s)))
        movable = false;
      if (movable) {
        out_.head.push_back(s);
        continue;
      }
      tail_.push_back(s);
      if (const Let* l = s.as<Let>()) inner_.insert(l->var.id);
      if (const For* f = s.as<For>()) {
        inner_.insert(f->var.id);
        if (!inner_loop_) inner_loop_ = f;
        conditional |= known_.of(f->extent).min.value_or(0) < 1;
      }
      conditional |= s.as<Check>() || s.as<If>();
    }
    guard_ = update_->guard;
    const bool loads = guard_ && (has_load(guard_) || has_variable_divisor(guard_));
    if (!guard_ || mentions_any(guard_, inner_) || (conditional && loads)) return;
    out_.head.push_back(if_then(guard_, block({})));
    guard_ = {};
  }
  static bool divides_by_variable(const Stmt& s) {
    const std::vector<Expr> own = own_exprs(s);
    return std::any_of(own.begin(), own.end(), [](const Expr& e) { return has_variable_divisor(e); });
  }

  void find_destination() {
    Ids varying{loop_.var.id};
    for (const Stmt& s : out_.head) {
      if (const Let* l = s.as<Let>()) {
        if (own_mentions(s, varying)) varying.insert(l->var.id);
        known_.enter(*l);
      }
      if (const Check* c = s.as<Check>()) known_.assume(c->condition);
      if (const If* i = s.as<If>()) known_.assume(i->condition);
    }
    for (const Stmt& s : tail_)
      if (const Let* l = s.as<Let>(); l && own_mentions(s, varying)) varying.insert(l->var.id);
    std::vector<Expr> index = update_->index;
    for (size_t d = 0; d < index.size(); ++d) {
      if (!mentions_any(index[d], varying)) continue;
      if (mentions_any(index[d], inner_))
        fail(inner_loop_ ? "its destination depends on loop " + inner_loop_->var.name
                         : "its destination is known only under a condition");
      const Expr& extent = buffer_->dims[d];
      if (known_.proves(0 <= index[d]) != true || known_.proves(index[d] < extent) != true)
        fail("destination " + print(index[d]) + " is not proved in [0, " + print(extent) + ")");
      const Var* named = index[d].as<Var>();
      const Var at = named ? *named : make_var(loop_.var.name + "_j");
      if (!named || at.id == loop_.var.id) {
        const Var own = named ? make_var(loop_.var.name + "_j") : at;
        out_.head.push_back(let(own, index[d], block({})));
        out_.destination.push_back({d, own, extent});
        index[d] = var(own);
      } else {
        out_.destination.push_back({d, at, extent});
      }
    }
    if (out_.destination.empty()) fail("its destination does not depend on it");
    out_.tail = wrapped(tail_, accumulate(buffer_, std::move(index), update_->op, update_->value, update_->factor,
                                          guard_, update_->atomic, update_->ordered));
  }

  const std::string step_;
  const For& loop_;
  const Buffer buffer_;
  Ranges known_;
  std::vector<Stmt> chain_, tail_;
  const Accumulate* update_ = nullptr;
  Expr guard_;
  Ids inner_;  // the loops below and the lets that depend on them
  const For* inner_loop_ = nullptr;
  Scatter out_;
};

}  // namespace

Stmt Scatter::around(const std::function<Stmt(const std::vector<Expr>&)>& body) const {
  std::vector<Expr> at;
  for (const Dim& d : destination) at.push_back(var(d.at));
  Stmt result = body(at);
  for (size_t i = head.size(); i-- > 0;)
    if (const Let* l = head[i].as<Let>(); !l || mentions(result, l->var.id)) result = with_body(head[i], result);
  return refresh(result);
}

bool Scatter::head_loads_or_checks() const {
  return std::any_of(head.begin(), head.end(), [](const Stmt& s) {
    return s.as<Check>() || any_of_own(s, [](const Expr& e) { return e.as<Load>() != nullptr; });
  });
}

Scatter scatter_of(const std::string& step, const Site& site, const Buffer& buffer) {
  return Match(step, site, buffer).take();
}

}  // namespace gradloom::ir
