// Turns writes of a lane loop that may conflict across lanes into ordered ones: recorded in the body, and performed
// after it, one lane after the other. Where lanes are not proved independent (races.h), these are all plain writes of
// the body to memory shared by several lanes; writes in an inner loop are proved (lane_order_conflict).
// Refused: such a write of a vector, a second one to the same buffer, a read of it in the loop.
// Requires: lane loops are proved by lane_order_conflict. Gives: lane loops proved by loop_carried_conflict except for
// ordered writes. Breaks: nothing.
#include <unordered_set>

#include "gradloom/refusal.h"
#include "ir/analysis/races.h"
#include "ir/passes/passes.h"
#include "ir/rewrite.h"

namespace gradloom::ir {
namespace {

[[noreturn]] void refuse(const std::string& why) {
  throw LoweringRefusal(ErrorCode::unsupported, "order_lanes: " + why);
}

// The body of a lane loop.
struct Ordered : Rewriter {
  using Rewriter::rewrite;
  Stmt rewrite(const For&, const Stmt& self) override { return self; }
  Stmt rewrite(const Alloc& n, const Stmt& self) override {
    own.insert(n.buffer->id);
    return Rewriter::rewrite(n, self);
  }
  Stmt rewrite(const Store& n, const Stmt& self) override {
    return orders(n.buffer, n.value) ? store(n.buffer, n.index, n.value, n.guard, n.streaming, true) : self;
  }
  Stmt rewrite(const Accumulate& n, const Stmt& self) override {
    if (n.atomic || !orders(n.buffer, n.value)) return self;
    return accumulate(n.buffer, n.index, n.op, n.value, n.factor, n.guard, false, true);
  }
  bool orders(const Buffer& b, const Expr& value) {
    if (own.contains(b->id)) return false;
    if (value.lanes() != 1) refuse("a vector is written to " + b->name + " where the lanes of a warp may conflict");
    if (!written.insert(b->id).second) refuse(b->name + " is written twice in a lane loop whose lanes may conflict");
    return true;
  }
  std::unordered_set<int64_t> own, written;
};

class OrderLanes : public Rewriter {
 public:
  explicit OrderLanes(const Kernel& kernel) : scope_(kernel) {}

 private:
  using Rewriter::rewrite;
  Stmt rewrite(const For& n, const Stmt& self) override {
    if (n.kind != ForKind::lane) {
      const Ranges::Scope inner(scope_, n);
      return Rewriter::rewrite(n, self);
    }
    if (loop_carried_conflict(n, scope_).empty()) return self;
    Ordered ordered;
    const Stmt body = ordered(n.body);
    walk(n.body, {}, [&](const Expr& e) {
      if (const auto* load = e.as<Load>(); load && ordered.written.contains(load->buffer->id))
        refuse(load->buffer->name + " is read in a lane loop whose lanes may conflict in writing it");
    });
    return for_loop(n.var, n.begin, n.extent, n.kind, body);
  }
  Stmt rewrite(const Let& n, const Stmt& self) override {
    const Ranges::Scope inner(scope_, n);
    return Rewriter::rewrite(n, self);
  }
  Stmt rewrite(const Check& n, const Stmt& self) override {
    const Ranges::Scope inner(scope_, n.condition);
    return Rewriter::rewrite(n, self);
  }
  Stmt rewrite(const If& n, const Stmt& self) override {
    const Stmt then_case = below(n.then_case, n.condition), else_case = below(n.else_case, n.condition, false);
    if (then_case.same_as(n.then_case) && else_case.same_as(n.else_case)) return self;
    return if_then(n.condition, then_case, else_case);
  }
  template <class... Known>
  Stmt below(const Stmt& s, const Known&... known) {
    const Ranges::Scope inner(scope_, known...);
    return (*this)(s);
  }

  Ranges scope_;
};

}  // namespace

Kernel order_lanes(const Kernel& kernel) {
  const bool lanes =
      any_of(kernel.body, [](const Stmt& s) { return s.as<For>() && s.as<For>()->kind == ForKind::lane; });
  return lanes ? OrderLanes(kernel)(kernel) : kernel;
}

}  // namespace gradloom::ir
