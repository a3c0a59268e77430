#include "ir/redirect.h"

#include "ir/rewrite.h"

namespace gradloom::ir {
namespace {

class Redirect : public Rewriter {
 public:
  explicit Redirect(const Redirections& buffers) : buffers_(buffers) {}
  using Rewriter::operator();

 private:
  using Rewriter::rewrite;
  const Redirection* of(const Buffer& b) const {
    const auto found = buffers_.find(b->id);
    return found == buffers_.end() ? nullptr : &found->second;
  }
  std::vector<Expr> moved(const Redirection& r, const std::vector<Expr>& index) {
    bool changed = false;
    std::vector<Expr> own = list(index, changed);
    return r.index ? r.index(std::move(own)) : own;
  }
  Expr rewrite(const Load& n, const Expr& self) override {
    const Redirection* r = of(n.buffer);
    if (!r) return Rewriter::rewrite(n, self);
    return load(r->to, moved(*r, n.index), (*this)(n.guard), (*this)(n.otherwise));
  }
  Expr rewrite(const Intrinsic& n, const Expr& self) override {
    const Redirection* r = n.op == IntrinsicOp::prefetch ? of(n.buffer) : nullptr;
    return r && r->hints ? prefetch(r->to, moved(*r, n.args), n.level) : Rewriter::rewrite(n, self);
  }
  Stmt rewrite(const Store& n, const Stmt& self) override {
    const Redirection* r = of(n.buffer);
    if (!r) return Rewriter::rewrite(n, self);
    return store(r->to, moved(*r, n.index), (*this)(n.value), (*this)(n.guard), n.streaming && r->hints);
  }
  Stmt rewrite(const Accumulate& n, const Stmt& self) override {
    const Redirection* r = of(n.buffer);
    if (!r) return Rewriter::rewrite(n, self);
    return accumulate(r->to, moved(*r, n.index), n.op, (*this)(n.value), (*this)(n.factor), (*this)(n.guard),
                      n.atomic && r->atomic);
  }
  Stmt rewrite(const Reduce& n, const Stmt& self) override {
    const Redirection* r = of(n.buffer);
    if (!r) return Rewriter::rewrite(n, self);
    Reduce now = n;
    now.buffer = r->to;
    now.index = moved(*r, n.index);
    const auto again = [&](Expr& e) { e = (*this)(e); };
    for (Reduce::Range& range : now.ranges) again(range.begin), again(range.extent);
    again(now.guard);
    for (Reduce::Definition& d : now.lets) again(d.value);
    again(now.value), again(now.factor);
    return reduce(std::move(now));
  }
  Stmt rewrite(const Alloc& n, const Stmt& self) override {
    const Redirection* r = of(n.buffer);
    if (!r) return Rewriter::rewrite(n, self);
    const Stmt body = (*this)(n.body);
    return r->to.same_as(n.buffer) ? alloc(r->to, body) : body;
  }

  const Redirections& buffers_;
};

}  // namespace

Stmt redirect(const Stmt& s, const Redirections& buffers) { return Redirect(buffers)(s); }
Stmt redirect(const Stmt& s, const Buffer& from, Redirection to) { return redirect(s, {{from->id, std::move(to)}}); }

void drop_open_facts(BufferNode& node, const std::vector<Var>& vars) {
  for (Expr* bound : {&node.facts.min, &node.facts.max})
    if (*bound && !uses_only(*bound, vars)) *bound = {};
}

Buffer with_closed_facts(const Buffer& b, const std::vector<Var>& vars) {
  BufferNode node = *b;
  drop_open_facts(node, vars);
  const bool same = static_cast<bool>(node.facts.min) == static_cast<bool>(b->facts.min) &&
                    static_cast<bool>(node.facts.max) == static_cast<bool>(b->facts.max);
  return same ? b : make_buffer(std::move(node));
}

Buffer in_space(const Buffer& b, Space space) {
  BufferNode node = *b;
  node.space = space;
  return make_buffer(std::move(node));
}

}  // namespace gradloom::ir
