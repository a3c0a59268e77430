// Statements with other variables: values in their place, or fresh ones.
#include "ir/rewrite.h"

namespace gradloom::ir {
namespace {

// Substitutes variables; a buffer whose declaration mentions one is rebuilt once, under its own id.
struct Substitute : Rewriter {
  explicit Substitute(const Substitution& v) : values(v) {}
  using Rewriter::rewrite;
  Expr rewrite(const Var& v, const Expr& self) override {
    auto found = values.find(v.id);
    return found == values.end() ? self : found->second;
  }
  Buffer buffer(const Buffer& b) override {
    if (b->role != Role::temp) return b;
    auto [slot, fresh] = buffers.try_emplace(b->id, b);
    if (fresh) {
      bool changed = false;
      BufferNode node = declaration(b, changed);
      if (changed) buffers[b->id] = make_buffer(std::move(node));
    }
    return buffers.at(b->id);
  }
  const Substitution& values;
  std::unordered_map<int64_t, Buffer> buffers;
};

struct Refresh : Rewriter {
  using Rewriter::rewrite;
  Expr rewrite(const Var& v, const Expr& self) override {
    auto found = vars.find(v.id);
    return found == vars.end() ? self : var(found->second);
  }
  Var renew(const Var& v) { return vars[v.id] = make_var(v.name, v.type); }
  Stmt rewrite(const For& n, const Stmt&) override {
    Expr begin = (*this)(n.begin), extent = (*this)(n.extent);
    Var v = renew(n.var);
    return for_loop(v, begin, extent, n.kind, (*this)(n.body));
  }
  Stmt rewrite(const Let& n, const Stmt&) override {
    Expr value = (*this)(n.value);
    Var v = renew(n.var);
    return let(v, value, (*this)(n.body));
  }
  Stmt rewrite(const Reduce& n, const Stmt&) override {
    Reduce now = n;
    now.buffer = buffer(n.buffer);
    const auto again = [&](Expr& e) { e = (*this)(e); };
    for (Expr& i : now.index) again(i);
    for (Reduce::Range& r : now.ranges) {
      again(r.begin), again(r.extent);
      r.var = renew(r.var);
    }
    again(now.guard);
    for (Reduce::Definition& d : now.lets) {
      again(d.value);
      d.var = renew(d.var);
    }
    again(now.value), again(now.factor);
    return reduce(std::move(now));
  }
  Stmt rewrite(const Alloc& n, const Stmt&) override {
    bool changed = false;
    BufferNode node = declaration(n.buffer, changed);
    node.id = 0;
    Buffer b = buffers[n.buffer->id] = make_buffer(std::move(node));
    return alloc(b, (*this)(n.body));
  }
  Buffer buffer(const Buffer& b) override {
    auto found = buffers.find(b->id);
    return found == buffers.end() ? b : found->second;
  }
  std::unordered_map<int64_t, Var> vars;
  std::unordered_map<int64_t, Buffer> buffers;
};

}  // namespace

Expr substitute(const Expr& e, const Substitution& values) { return Substitute(values)(e); }
Stmt substitute(const Stmt& s, const Substitution& values) { return Substitute(values)(s); }

Stmt refresh(const Stmt& s) { return Refresh()(s); }

}  // namespace gradloom::ir
