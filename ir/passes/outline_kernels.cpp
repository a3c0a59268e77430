// Lowers the host part of a GPU kernel to the form of verify_gpu.h, in which it only launches.
//   - a loop of kind parallel becomes serial
//   - statements without a grid loop become launches of one block; adjacent ones share one launch
//   - a let, condition or check that reads memory moves into each launch below it; where a launch below writes that
//     memory, the value is saved to scratch first
//   - a check is evaluated in a launch of its own where the launches below it may have no block
//   - a loop over launches whose bounds are known on the device only is executed by one block, in order
//   - scratch whose size is known on the device only is allocated at its upper bound; without a bound: refused. Scratch
//     of a cooperative loop is allocated outside it
//   - a small buffer used by a single launch of one block moves into it; others are scratch
// Requires: no vector and no unroll loop; the kernel is for a GPU. Gives: the form, except for the memory spaces of the
// buffers of blocks, warps and threads. Breaks: nothing.
#include <algorithm>
#include <functional>
#include <unordered_map>
#include <utility>

#include "gradloom/refusal.h"
#include "ir/analysis/buffer_access.h"
#include "ir/index_math.h"
#include "ir/passes/host_bound.h"
#include "ir/passes/passes.h"
#include "ir/redirect.h"
#include "ir/rewrite.h"
#include "ir/scalar_program.h"

namespace gradloom::ir {
namespace {

constexpr int64_t small_bytes = 1024;

bool holds_grid(const Stmt& s) {
  return any_of(s, [](const Stmt& x) { return x.as<For>() && x.as<For>()->kind == ForKind::grid; });
}

// The launches that use a buffer, and whether one of them is in a loop of the host part.
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

// Fallback for a loop whose bounds are known on the device only, so that its iterations cannot be launched: one block
// executes it, in order.
struct Sequential : Rewriter {
  using Rewriter::rewrite;
  Stmt rewrite(const For& n, const Stmt& self) override {
    if (n.kind != ForKind::grid && n.kind != ForKind::cooperative) return Rewriter::rewrite(n, self);
    return for_loop(n.var, (*this)(n.begin), (*this)(n.extent), ForKind::serial, (*this)(n.body));
  }
};
Stmt in_one_block(const Stmt& s) {
  Redirections moved;
  walk(s, [&](const Stmt& x) {
    const Alloc* n = x.as<Alloc>();
    if (n && n->buffer->space == Space::per_block) moved[n->buffer->id] = {in_space(n->buffer, Space::global)};
  });
  return Sequential()(redirect(s, moved));
}

// Parallel loops are for CPU cores: they become serial.
struct InOrder : Rewriter {
  using Rewriter::rewrite;
  Stmt rewrite(const For& n, const Stmt& self) override {
    if (n.kind != ForKind::parallel) return Rewriter::rewrite(n, self);
    return for_loop(n.var, n.begin, n.extent, ForKind::serial, (*this)(n.body));
  }
};

class Form {
 public:
  explicit Form(const Kernel& kernel) : scope_(kernel) {
    for (const Scalar& s : kernel.scalars) known_.push_back(s.var);
  }

  Stmt host(const Stmt& s) {
    if (!s) return s;
    if (!holds_grid(s)) return launch(make_var("once"), 0, 1, s);
    return std::visit([&](const auto& n) { return node(n, s); }, s.node().value);
  }

 private:
  using Wrap = std::function<Stmt(Stmt)>;

  bool on_host(const Expr& e) const { return is_scalar_arithmetic(e) && uses_only(e, known_); }
  bool on_host(const For& n) const { return on_host(n.begin) && on_host(n.extent); }

  Stmt launch(const Var& v, const Expr& begin, const Expr& extent, Stmt body) const {
    for (size_t i = inside_.size(); i-- > 0;) body = inside_[i](body);
    return for_loop(v, begin, extent, ForKind::grid, body);
  }
  Stmt once(const Stmt& body) const { return launch(make_var("once"), 0, 1, body); }

  // A let of the host part, sunk into a launch under a fresh variable.
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

  // Known on the host while `body` is built.
  template <class Binding>
  Stmt binding(const Binding& n, const Stmt& body) {
    const Ranges::Scope inner(scope_, n);
    known_.push_back(n.var);
    const Stmt result = host(body);
    known_.pop_back();
    return result;
  }
  template <class Make>
  auto assuming(const Expr& condition, Make&& make) {
    const Ranges::Scope inner(scope_, condition);
    return make();
  }

  // Scratch of the host part; none is allocated in a cooperative loop, which is one launch.
  Stmt scratch(const Buffer& b, const Stmt& body) {
    if (!cooperative_) return alloc(b, body);
    around_cooperative_.push_back(b);
    return body;
  }

  // `rest(value)`, with the value at this point: recomputed in each launch of `body`, or loaded from scratch if that
  // writes memory that it reads.
  Stmt keep(const std::string& name, const Expr& value, const Stmt& body,
            const std::function<Stmt(const Expr&)>& rest) {
    if (!may_clobber(body, value)) return rest(value);
    BufferNode node{.name = name + "_kept", .dtype = value.dtype(), .dims = {value.lanes()}};
    if (is_int(value.dtype())) {  // it may prove divisors and shift counts below
      const Range range = scope_.of(value);
      if (range.min) node.facts.min = constant_int(value.dtype(), *range.min);
      if (range.max) node.facts.max = constant_int(value.dtype(), *range.max);
    }
    const Buffer kept = make_buffer(std::move(node));
    const Expr at = value.lanes() == 1 ? Expr(0) : ramp(0, 1, value.lanes());
    const Stmt first = once(store(kept, {at}, value));
    return scratch(kept, block({first, rest(load(kept, {at}))}));
  }

  // Whether some launch in the result is certain to be executed, with at least one block.
  bool launches(const Stmt& s) const {
    if (!s) return false;
    if (!holds_grid(s) || s.as<Check>()) return true;
    if (const For* n = s.as<For>()) {
      if (!on_host(*n)) return true;
      return scope_.of(n->extent).min.value_or(0) > 0 && (n->kind == ForKind::grid || launches(n->body));
    }
    if (const Block* n = s.as<Block>())
      return std::any_of(n->stmts.begin(), n->stmts.end(), [&](const Stmt& part) { return launches(part); });
    if (const Let* n = s.as<Let>()) return launches(n->body);
    if (const Alloc* n = s.as<Alloc>()) return launches(n->body);
    if (const If* n = s.as<If>()) return !on_host(n->condition) && (launches(n->then_case) || launches(n->else_case));
    return false;
  }

  Stmt node(const Block& n, const Stmt&) {
    std::vector<Stmt> stmts, run;
    const auto flush = [&] {
      if (!run.empty()) stmts.push_back(once(block(std::move(run))));
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
  Stmt node(const For& n, const Stmt& self) {
    if (!on_host(n)) return once(in_one_block(self));
    if (n.kind == ForKind::grid) return launch(n.var, n.begin, n.extent, n.body);
    if (n.kind != ForKind::cooperative) return for_loop(n.var, n.begin, n.extent, n.kind, binding(n, n.body));
    cooperative_ = known_.size() + 1;
    Stmt result = for_loop(n.var, n.begin, n.extent, n.kind, binding(n, n.body));
    cooperative_ = 0;
    for (const Buffer& b : std::exchange(around_cooperative_, {})) result = alloc(b, result);
    return result;
  }
  Stmt node(const Let& n, const Stmt&) {
    if (on_host(n.value)) return let(n.var, n.value, binding(n, n.body));
    return keep(n.var.name, n.value, n.body, [&](const Expr& value) {
      const Ranges::Scope inner(scope_, n);
      return within(sunk(n.var, value), n.body);
    });
  }
  Stmt node(const If& n, const Stmt& self) {
    const Expr otherwise = unary(UnaryOp::bit_not, n.condition);
    if (on_host(n.condition)) {
      const Stmt yes = assuming(n.condition, [&] { return host(n.then_case); }),
                 no = assuming(otherwise, [&] { return host(n.else_case); });
      return if_then(n.condition, yes, no);
    }
    return keep("condition", n.condition, self, [&](const Expr& condition) {
      const auto branch = [&](const Expr& taken, const Expr& known, const Stmt& s) {
        return assuming(known, [&] { return within([taken](Stmt body) { return if_then(taken, body); }, s); });
      };
      return block({branch(condition, n.condition, n.then_case),
                    branch(unary(UnaryOp::bit_not, condition), otherwise, n.else_case)});
    });
  }
  Stmt node(const Check& n, const Stmt&) {
    // Unconditionally: where the condition does not hold the launches must report it.
    const bool launched = launches(n.body);
    return keep("condition", n.condition, n.body, [&](const Expr& condition) {
      return assuming(n.condition, [&] {
        if (launched)
          return keep("position", n.position, n.body, [&](const Expr& position) {
            return within([condition, position, &n](Stmt body) { return check(condition, position, n.argument, body); },
                          n.body);
          });
        // Launches without blocks would report nothing.
        const Stmt reports = once(check(condition, n.position, n.argument, block({})));
        const Expr holds = condition.lanes() == 1 ? condition : all_lanes(condition);
        if (on_host(holds)) return block({reports, if_then(holds, host(n.body))});
        return block({reports, within([holds](Stmt body) { return if_then(holds, body); }, n.body)});
      });
    });
  }
  Stmt node(const Alloc& n, const Stmt&) {
    Buffer b = n.buffer;
    Stmt body = host(n.body);
    if (b->space == Space::per_block) return alloc(b, body);
    int64_t bytes = size_of(b->dtype);
    for (const Expr& dim : b->dims)
      bytes = as_int(dim) && bytes <= small_bytes ? bytes * *as_int(dim) : small_bytes + 1;
    Users users(b);
    users.visit(body, false);
    if (bytes <= small_bytes && users.launches.size() == 1 && !users.looped &&
        is_const(users.launches[0].as<For>()->extent, 1))
      return MoveIn(users.launches[0], b)(body);
    if (b->space != Space::global) {
      b = in_space(b, Space::global);
      body = redirect(body, b, {b});
    }
    // Its size, from facts known where it is allocated.
    const std::vector<Var> known(
        known_.begin(), known_.begin() + static_cast<std::ptrdiff_t>(cooperative_ ? cooperative_ - 1 : known_.size()));
    const bool as_is = std::all_of(b->dims.begin(), b->dims.end(),
                                   [&](const Expr& dim) { return is_scalar_arithmetic(dim) && uses_only(dim, known); });
    return as_is ? scratch(b, body) : bounded(b, known, body);
  }
  Stmt bounded(const Buffer& b, const std::vector<Var>& known, const Stmt& body) {
    BufferNode node = *b;
    for (Expr& dim : node.dims) {
      dim = at_most(dim, known, scope_, scope_);
      if (!dim)
        throw LoweringRefusal(ErrorCode::unsupported,
                              "outline_kernels: nothing outside a launch bounds the size of buffer " + b->name);
    }
    drop_open_facts(node, known);
    node.facts.nondecreasing = node.facts.injective = false;
    node.id = 0;
    const Buffer to = make_buffer(std::move(node));
    return scratch(to, redirect(body, b, {to}));
  }
  Stmt node(const Store&, const Stmt& self) { return self; }
  Stmt node(const Accumulate&, const Stmt& self) { return self; }
  Stmt node(const Evaluate&, const Stmt& self) { return self; }
  Stmt node(const Reduce&, const Stmt& self) { return self; }
  Stmt node(const Barrier&, const Stmt& self) { return self; }

  std::vector<Wrap> inside_;  // the constructs that each launch here is nested in, outermost first
  std::vector<Var> known_;    // on the host
  Ranges scope_;
  size_t cooperative_ = 0;                  // in a cooperative loop: how many variables are known including its own
  std::vector<Buffer> around_cooperative_;  // scratch allocated outside it
};

}  // namespace

Kernel outline_kernels(const Kernel& kernel) {
  Kernel result = kernel;
  result.body = Form(kernel).host(InOrder()(kernel.body));
  return result;
}

}  // namespace gradloom::ir
