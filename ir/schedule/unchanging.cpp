#include "ir/schedule/unchanging.h"

#include <map>
#include <unordered_set>

#include "ir/rewrite.h"
#include "ir/scalar_math.h"

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
    } else if (std::any_of(index.begin(), index.end(), [&](const Expr& i) { return reads_own(i); }) ||
               !equal(value, load(n.buffer, index))) {
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

  // What is equal as text may differ as a value: the memory may have changed in between.
  bool reads_own(const Expr& e) const {
    return any_of(e, [&](const Expr& x) { return x.as<Load>() && own_.contains(x.as<Load>()->buffer->id); });
  }
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

std::string why_it_changes(const Stmt& body, int64_t skipped) {
  Unchanging evaluated(skipped);
  evaluated.run(body);
  return evaluated.why;
}

}  // namespace gradloom::ir
