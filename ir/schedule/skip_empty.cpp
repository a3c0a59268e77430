// The step skip_empty: a loop's body, where without an iteration of an inner loop it would change nothing.
#include <map>
#include <unordered_set>

#include "gradloom/schedule.h"
#include "gradloom/text.h"
#include "ir/index_math.h"
#include "ir/rewrite.h"
#include "ir/scalar_math.h"
#include "ir/schedule/site.h"
#include "ir/wrappers.h"

namespace gradloom::ir {
namespace {

// Evaluates a body without its inner loop as far as constants go, and finds why it might change memory.
class Unchanging : public Rewriter {
 public:
  explicit Unchanging(int64_t skipped) : skipped_(skipped) {}
  using Rewriter::operator();
  std::string why;  // empty: it changes nothing

  void run(const Stmt& s) {
    if (s) std::visit([&](const auto& n) { see(n, s); }, s.node().value);
  }

 private:
  void see(const For& n, const Stmt& self) {
    if (n.var.id == skipped_) return;
    forget_written(self);
    run(n.body);
    forget_written(self);
  }
  void see(const Block& n, const Stmt&) {
    for (const Stmt& s : n.stmts) run(s);
  }
  void see(const Let& n, const Stmt&) {
    lets_[n.var.id] = (*this)(n.value);
    run(n.body);
  }
  void see(const Store& n, const Stmt&) {
    bool changed = false;
    const std::vector<Expr> index = list(n.index, changed);
    const Expr value = (*this)(n.value);
    if (own_.contains(n.buffer->id)) {
      const std::optional<std::vector<int64_t>> at = constant(index);
      if (!at) forget(n.buffer);
      if (at) known_[{n.buffer->id, *at}] = n.guard ? Expr() : value;
    } else if (!equal(value, load(n.buffer, index))) {
      why = "it stores to buffer " + n.buffer->name + " what is not proved to be there";
    }
  }
  void see(const Accumulate& n, const Stmt&) { update(n.buffer); }
  void see(const Reduce& n, const Stmt&) { update(n.buffer); }
  void see(const If& n, const Stmt& self) {
    run(n.then_case);
    forget_written(self);
    run(n.else_case);
    forget_written(self);
  }
  void see(const Alloc& n, const Stmt&) {
    own_.insert(n.buffer->id);
    run(n.body);
  }
  void see(const Check& n, const Stmt&) { why = "it checks " + n.argument; }
  void see(const Evaluate&, const Stmt&) {}
  void see(const Barrier&, const Stmt&) {}

  void update(const Buffer& b) { own_.contains(b->id) ? forget(b) : void(why = "it adds to buffer " + b->name); }
  void forget(const Buffer& b) {
    std::erase_if(known_, [&](const auto& entry) { return entry.first.first == b->id; });
  }
  void forget_written(const Stmt& s) {
    walk(s, [&](const Stmt& x) {
      if (const Store* n = x.as<Store>()) forget(n->buffer);
      if (const Accumulate* n = x.as<Accumulate>()) forget(n->buffer);
      if (const Reduce* n = x.as<Reduce>()) forget(n->buffer);
    });
  }
  static std::optional<std::vector<int64_t>> constant(const std::vector<Expr>& index) {
    std::vector<int64_t> result;
    for (const Expr& i : index) {
      const std::optional<int64_t> value = as_int(i);
      if (!value) return {};
      result.push_back(*value);
    }
    return result;
  }

  using Rewriter::rewrite;
  Expr rewrite(const Var& v, const Expr& self) override {
    const auto found = lets_.find(v.id);
    return found == lets_.end() ? self : found->second;
  }
  Expr rewrite(const Load& n, const Expr& self) override {
    bool changed = false;
    const std::optional<std::vector<int64_t>> at = constant(list(n.index, changed));
    const auto found = at && !n.guard ? known_.find({n.buffer->id, *at}) : known_.end();
    return found == known_.end() || !found->second ? Rewriter::rewrite(n, self) : found->second;
  }
  Expr rewrite(const Binary& n, const Expr& self) override {
    const Expr a = (*this)(n.a), b = (*this)(n.b);
    const Const *x = a.as<Const>(), *y = b.as<Const>();
    if (x && y && is_defined(n.op, a.dtype(), y->bits))
      return constant_bits(self.dtype(), eval_binary(n.op, a.dtype(), x->bits, y->bits));
    return binary(n.op, a, b);
  }
  Expr rewrite(const Select& n, const Expr&) override {
    const Expr condition = (*this)(n.condition), a = (*this)(n.a), b = (*this)(n.b);
    const Const* known = condition.as<Const>();
    return known ? (known->bits != 0 ? a : b) : select(condition, a, b);
  }
  Expr rewrite(const Cast& n, const Expr& self) override {
    const Expr value = (*this)(n.value);
    const Const* known = value.as<Const>();
    return known ? constant_bits(self.dtype(), eval_cast(value.dtype(), self.dtype(), known->bits))
                 : cast(self.dtype(), value);
  }
  Expr rewrite(const Bitcast& n, const Expr& self) override {
    Expr value = (*this)(n.value);
    while (const Bitcast* inner = value.as<Bitcast>()) value = inner->value;
    return value.dtype() == self.dtype() ? value : bitcast(self.dtype(), value);
  }

  const int64_t skipped_;
  Substitution lets_;
  std::unordered_set<int64_t> own_;                                 // buffers that the body allocates
  std::map<std::pair<int64_t, std::vector<int64_t>>, Expr> known_;  // elements of those; absent: unknown
};

}  // namespace

void Schedule::skip_empty(Loop outer_id, Loop inner_id) {
  const Site site = find_loop(kernel_, outer_id), below = find_loop(kernel_, inner_id);
  const For &outer = *site.loop, &inner = *below.loop;
  const auto fail = [&](const std::string& why) { refuse("skip_empty", outer.var.name, why); };
  if (site.path.size() >= below.path.size() || !below.path[site.path.size() - 1].same_as(site.stmt()))
    fail("loop " + inner.var.name + " is not in it");
  Unchanging body(inner_id);
  body.run(outer.body);
  if (!body.why.empty()) fail("without an iteration of loop " + inner.var.name + " " + body.why);
  // The condition stands below the lets that it needs, as far as they stand at the top; the others are put into it.
  std::vector<Var> known = visible(kernel_, site, true);
  std::vector<Stmt> lets;
  Stmt rest = outer.body;
  for (const Let* l = rest.as<Let>(); l && !uses_only(inner.extent, known); l = rest.as<Let>()) {
    known.push_back(l->var);
    lets.push_back(rest);
    rest = l->body;
  }
  const std::string iterations = "how many iterations loop " + inner.var.name + " has is ";
  Expr extent = inner.extent;
  for (size_t i = below.path.size() - 1; i-- > site.path.size();)
    if (const Let* l = below.path[i].as<Let>(); l && !uses_only(extent, known))
      extent = substitute(extent, {{l->var.id, l->value}});
  if (!uses_only(extent, known)) fail(iterations + "known only further inside");
  if (may_clobber(outer.body, extent)) fail(iterations + "read from memory that it writes");
  for (size_t i = site.path.size(); i + 1 < below.path.size() && has_load(extent); ++i) {
    const For* f = below.path[i].as<For>();
    if (below.path[i].as<If>() || below.path[i].as<Check>() || (f && below.scope.of(f->extent).min.value_or(0) < 1))
      fail(iterations + "read from memory under a condition");
  }
  const std::string line = "skip_empty " + handle_name(kernel_, outer_id) + " " + handle_name(kernel_, inner_id);
  put("skip_empty", site,
      for_loop(outer.var, outer.begin, outer.extent, outer.kind, wrapped(lets, if_then(0 < extent, rest))), line);
}

}  // namespace gradloom::ir
