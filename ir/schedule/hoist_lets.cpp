// The step hoist_lets: what a loop's iterations all evaluate alike is evaluated once, before it.
#include <unordered_set>

#include "gradloom/schedule.h"
#include "ir/index_math.h"
#include "ir/rewrite.h"
#include "ir/schedule/filled.h"
#include "ir/wrappers.h"

namespace gradloom::ir {
namespace {

// Takes the lets that may stand before the loop out of its body, and the conditions that all of it is under.
class TakeLets : public Rewriter {
 public:
  explicit TakeLets(const Site& site)
      : site_(site), loop_(*site.loop), known_(site.scope), evaluated_(known_.of(loop_.extent).min.value_or(0) >= 1) {
    bound_.insert(loop_.var.id);
  }
  std::vector<Stmt> taken;  // outermost first

  Stmt rest() {
    Stmt s = loop_.body;
    for (bool more = true; more;) {
      more = false;
      if (const Let* n = s.as<Let>(); n && free(n->value)) s = take(*n), more = true;
      const If* condition = s.as<If>();
      if (condition && !condition->else_case && free(condition->condition)) {
        taken.push_back(if_then(condition->condition, block({})));
        known_.assume(condition->condition);
        s = Stmt(condition->then_case), more = true;
      }
    }
    evaluated_ = false;
    return (*this)(s);
  }

 private:
  using Rewriter::operator();
  Stmt take(const Let& n) {
    taken.push_back(let(n.var, n.value, block({})));
    known_.enter(n);
    return n.body;
  }
  using Rewriter::rewrite;
  Stmt rewrite(const Let& n, const Stmt& self) override {
    if (!free(n.value)) {
      bound_.insert(n.var.id);
      return Rewriter::rewrite(n, self);
    }
    return (*this)(take(n));
  }
  Stmt rewrite(const For& n, const Stmt& self) override {
    bound_.insert(n.var.id);
    return Rewriter::rewrite(n, self);
  }
  Stmt rewrite(const Alloc& n, const Stmt& self) override {
    own_.insert(n.buffer->id);
    return Rewriter::rewrite(n, self);
  }
  Stmt rewrite(const If&, const Stmt& self) override { return self; }
  Stmt rewrite(const Check&, const Stmt& self) override { return self; }

  // Whether the value is the same in all iterations, and defined even if there is none.
  bool free(const Expr& value) const {
    return (evaluated_ || !has_variable_divisor(value)) && !may_clobber(loop_.body, value) &&
           !any_of(value, [&](const Expr& e) {
             const Var* v = e.as<Var>();
             const Load* l = e.as<Load>();
             return (v && bound_.contains(v->id)) || (l && !evaluated_ && !holds_value(*l));
           });
  }
  bool holds_value(const Load& l) const {
    const Buffer& b = l.buffer;
    if (own_.contains(b->id)) return false;
    for (size_t d = 0; d < l.index.size(); ++d)
      if (known_.proves((0 <= l.index[d]) & (l.index[d] < b->dims[d])) != true) return false;
    const std::vector<Expr> origin(b->dims.size(), Expr(0));
    return b->role == Role::in || b->role == Role::inout || filled_before(site_, b, origin, b->dims);
  }

  const Site& site_;
  const For& loop_;
  Ranges known_;                             // at the loop, with what is taken
  bool evaluated_;                           // what is looked at is evaluated by the first iteration, which there is
  std::unordered_set<int64_t> bound_, own_;  // variables and buffers of the body
};

}  // namespace

void Schedule::hoist_lets(Loop id) {
  const Site site = find_loop(kernel_, id);
  const For& loop = *site.loop;
  TakeLets take(site);
  const Stmt body = take.rest();
  if (take.taken.empty())
    refuse("hoist_lets", loop.var.name, "no let in it is proved to be the same in all iterations");
  const Stmt rest = for_loop(loop.var, loop.begin, loop.extent, loop.kind, body);
  put("hoist_lets", site, wrapped(take.taken, rest), "hoist_lets " + handle_name(kernel_, id));
}

}  // namespace gradloom::ir
