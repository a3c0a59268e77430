// The host part of a GPU's kernel is brought into the form of gpu_form.h: it only launches.
//   - statements without a grid loop become launches of one block, neighbours one launch
//   - a let, condition or check that needs memory goes into each launch below it; where a launch below writes that memory, the value is kept in scratch first
//   - a small buffer that one launch of one block uses moves into it; others are scratch
// Requires: no vector and no unroll loop; the kernel is for a GPU. Gives: the form, but for where buffers of blocks, warps and threads lie. Breaks: nothing.
#include <algorithm>
#include <functional>
#include <unordered_set>

#include "ir/index_math.h"
#include "ir/passes/passes.h"
#include "ir/rewrite.h"
#include "ir/schedule_site.h"

namespace gradloom::ir {
namespace {

constexpr int64_t small_bytes = 1024;

bool holds_grid(const Stmt& s) {
  bool found = false;
  if (s)
    walk(s, [&](const Stmt& x) {
      const For* f = x.as<For>();
      found |= f && f->kind == ForKind::grid;
    });
  return found;
}

struct Demote : Rewriter {
  explicit Demote(const Buffer& b) {
    BufferNode node = *b;
    node.space = Space::global;
    scratch = make_buffer(std::move(node));
  }
  Buffer buffer(const Buffer& b) override { return b.same_as(scratch) ? scratch : b; }
  Buffer scratch;
};

// The launches that use a buffer, and whether one of them stands in a loop of the host part.
struct Users {
  explicit Users(const Buffer& b) : buffer(b) {}
  void visit(const Stmt& s, bool in_loop) {
    if (!s) return;
    if (const For* n = s.as<For>()) {
      if (n->kind != ForKind::grid) return visit(n->body, true);
      if (accesses(s, buffer).empty()) return;
      launches.push_back(s);
      looped |= in_loop;
    } else if (const Block* n = s.as<Block>()) {
      for (const Stmt& part : n->stmts) visit(part, in_loop);
    } else if (const Let* n = s.as<Let>()) {
      visit(n->body, in_loop);
    } else if (const If* n = s.as<If>()) {
      visit(n->then_case, in_loop);
      visit(n->else_case, in_loop);
    } else if (const Alloc* n = s.as<Alloc>()) {
      visit(n->body, in_loop);
    }
  }
  const Buffer& buffer;
  std::vector<Stmt> launches;
  bool looped = false;
};

struct MoveIn : Rewriter {
  MoveIn(const Stmt& l, const Buffer& b) : launch(l), buffer_in(b) {}
  using Rewriter::rewrite;
  Stmt rewrite(const For& n, const Stmt& self) override {
    if (!self.same_as(launch)) return Rewriter::rewrite(n, self);
    return for_loop(n.var, n.begin, n.extent, n.kind, alloc(buffer_in, n.body));
  }
  const Stmt& launch;
  const Buffer& buffer_in;
};

class Form {
 public:
  Stmt host(const Stmt& s) {
    if (!s) return s;
    if (!holds_grid(s)) return launch(make_var("once"), 0, 1, s);
    return std::visit([&](const auto& n) { return node(n, s); }, s.node().value);
  }

 private:
  using Wrap = std::function<Stmt(Stmt)>;

  bool on_host(const Expr& e) const {
    bool ok = true;
    walk(e, [&](const Expr& x) {
      if (x.as<Load>()) ok = false;
      if (const Var* v = x.as<Var>()) ok &= !device_.contains(v->id);
    });
    return ok;
  }

  Stmt launch(const Var& v, const Expr& begin, const Expr& extent, Stmt body) const {
    for (size_t i = inside_.size(); i-- > 0;) body = inside_[i](body);
    return for_loop(v, begin, extent, ForKind::grid, body);
  }

  // A let of the host part, put into a launch under a variable of its own.
  static Wrap sunk(const Var& v, const Expr& value) {
    return [v, value](Stmt body) {
      if (!mentions(body, v.id)) return body;
      const Var own = make_var(v.name, v.type);
      return let(own, value, substitute(body, {{v.id, var(own)}}));
    };
  }

  Stmt within(const Wrap& wrap, const Stmt& body) {
    inside_.push_back(wrap);
    const Stmt result = host(body);
    inside_.pop_back();
    return result;
  }

  // `rest(value)`, with the value as it is here: read again in each launch of `body`, from scratch if that writes what it reads.
  Stmt keep(const std::string& name, const Expr& value, const Stmt& body, const std::function<Stmt(const Expr&)>& rest) {
    if (!writes_what_is_read(body, value)) return rest(value);
    const Buffer kept = make_buffer({.name = name + "_kept", .dtype = value.dtype(), .dims = {1}});
    const Stmt first = launch(make_var("once"), 0, 1, store(kept, {0}, value));
    return alloc(kept, block({first, rest(load(kept, {0}))}));
  }

  Stmt node(const Block& n, const Stmt&) {
    std::vector<Stmt> stmts, run;
    const auto flush = [&] {
      if (!run.empty()) stmts.push_back(launch(make_var("once"), 0, 1, block(std::move(run))));
      run.clear();
    };
    for (const Stmt& s : n.stmts) {
      if (!holds_grid(s)) {
        run.push_back(s);
        continue;
      }
      flush();
      stmts.push_back(host(s));
    }
    flush();
    return block(std::move(stmts));
  }
  // A loop with bounds in memory stays, and is refused as what it is.
  Stmt node(const For& n, const Stmt&) {
    if (n.kind == ForKind::grid) return launch(n.var, n.begin, n.extent, n.body);
    return for_loop(n.var, n.begin, n.extent, n.kind, host(n.body));
  }
  Stmt node(const Let& n, const Stmt&) {
    if (on_host(n.value)) return let(n.var, n.value, host(n.body));
    device_.insert(n.var.id);
    return keep(n.var.name, n.value, n.body, [&](const Expr& value) { return within(sunk(n.var, value), n.body); });
  }
  Stmt node(const If& n, const Stmt& self) {
    if (on_host(n.condition)) return if_then(n.condition, host(n.then_case), host(n.else_case));
    return keep("condition", n.condition, self, [&](const Expr& condition) {
      const Stmt yes = within([condition](Stmt body) { return if_then(condition, body); }, n.then_case);
      const Expr otherwise = unary(UnaryOp::bit_not, condition);
      return block({yes, within([otherwise](Stmt body) { return if_then(otherwise, body); }, n.else_case)});
    });
  }
  Stmt node(const Check& n, const Stmt&) {
    return keep("condition", n.condition, n.body, [&](const Expr& condition) {
      return keep("position", n.position, n.body, [&](const Expr& position) {
        return within([condition, position, &n](Stmt body) { return check(condition, position, n.argument, body); }, n.body);
      });
    });
  }
  Stmt node(const Alloc& n, const Stmt&) {
    const Stmt body = host(n.body);
    if (n.buffer->space == Space::per_block) return alloc(n.buffer, body);
    int64_t bytes = size_of(n.buffer->dtype);
    for (const Expr& dim : n.buffer->dims) bytes = as_int(dim) && bytes <= small_bytes ? bytes * *as_int(dim) : small_bytes + 1;
    Users users(n.buffer);
    users.visit(body, false);
    if (bytes <= small_bytes && users.launches.size() == 1 && !users.looped && is_const(users.launches[0].as<For>()->extent, 1))
      return MoveIn(users.launches[0], n.buffer)(body);
    if (n.buffer->space == Space::global) return alloc(n.buffer, body);
    Demote demote(n.buffer);
    return alloc(demote.scratch, demote(body));
  }
  Stmt node(const Store&, const Stmt& self) { return self; }
  Stmt node(const Accumulate&, const Stmt& self) { return self; }
  Stmt node(const Evaluate&, const Stmt& self) { return self; }

  std::vector<Wrap> inside_;              // what each launch here stands in, outermost first
  std::unordered_set<int64_t> device_;  // lets that exist in launches only
};

}  // namespace

Kernel form_launches(const Kernel& kernel) {
  Kernel result = kernel;
  result.body = Form().host(kernel.body);
  return result;
}

}  // namespace gradloom::ir
