#include "ir/analysis/verify.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "gradloom/text.h"
#include "ir/analysis/races.h"
#include "ir/analysis/scoped_walk.h"
#include "ir/analysis/verify_gpu.h"
#include "ir/analysis/widenable.h"
#include "ir/reduction.h"
#include "ir/rewrite.h"

// Every stage:
//   - scalars, loop variables and lets are bound before they are used, with the type they are used at; no id is bound
//     twice
//   - a buffer is a parameter (in, out, inout) or allocated around its use (temp); an access agrees with its
//     declaration (dtype, rank, role, space)
//   - a parameter's dims, strides and facts mention scalars only; an allocated buffer's dims may read memory, its facts
//     may not; a dim of a parameter is not negative
//   - `exclusive` is a fact of temp buffers only; a scalar's range mentions earlier scalars only
//   - no store and no accumulate goes into an `in` buffer; no accumulate into f16, bf16 or bool
//   - divisors of floor_div and floor_mod are proved nonzero, shift counts proved within [0, bits)
//   - constants have the bits of their dtype; a prefetch stands in a statement of its own
//   - a reduction does not read its destination
//   - no vector has more than 4096 lanes
// authored:
//   - serial loops only; no expression has more than one lane; no streaming store; no barrier
// scheduled:
//   - vector loops have a constant extent of 2 to 64, unroll loops a constant extent of at most 64
//   - lane loops have a constant extent of 2 to 32
//   - no loop below a vector or lane loop is parallel, vector or a GPU loop; a vector loop's body can be widened
//     (widenable.h): it contains no vectors, and no inner loop's bounds and no allocated buffer's dims depend on its
//     variable
//   - parallel, grid, thread, warp and fragment loops are proved by loop_carried_conflict, vector and lane loops by
//     lane_order_conflict
// lowered:
//   - no reduction (expand_reductions makes loops of them)
//   - no vector and no unroll loop; the others are proved as before, but lane loops by loop_carried_conflict
//   - a buffer in registers has constant dims, and every index into it is constant (a ramp of constants, a broadcast
//     constant)
// lowered, with a loop bound to a GPU or a barrier (checked in verify_gpu.cpp; verify_gpu.h defines the parts):
//   - no parallel loop; cooperative loops are in the host part, grid loops there or in a cooperative loop, thread and
//     warp loops in the block part, lane and fragment loops in the warp part, matrix_unit loops in a pair of fragment
//     loops
//   - the host part, and a cooperative loop outside its grid loops, reads no memory and contains no store, accumulate
//     or check; the extents of grid loops in a cooperative loop do not depend on what is bound in it
//   - an allocation in the host part is global or, in a cooperative loop, per_block; shared, per_thread and per_warp
//     buffers are allocated in the block part; allocations outside the host part have constant dims
//   - an iteration accesses only its own part of a per_thread, per_block or per_warp buffer; a per_warp buffer is
//     [warps, rows, columns] of at most 32 warps
//   - a buffer that the block part, or the warp part, allocates replicated per thread (in no space of several threads)
//     is written in that part only
//   - two fragment loops, one directly in the other, run from 0 over multiples of 16 rows and of 4 pairs of columns (of
//     a product: of 8 columns), contain no other loop and no vector of more than two lanes; a product has the form that
//     fragment_product.h matches
//   - an ordered write is in a lane loop, in no loop inside it, has one lane, is not atomic, and is the only access of
//     the loop to its buffer
//   - a barrier of a warp is in the warp part, of a block in the block part or in a cooperative loop outside its grid
//     loops, of the grid there: where all threads that wait at it reach it
namespace gradloom::ir {
namespace {

constexpr int max_lanes = 4096, max_copies = 64;

// Rewrites loads with this guard to unguarded ones: their value in the lanes where it holds.
struct WhereGuardHolds : Rewriter {
  explicit WhereGuardHolds(const Expr& condition) : guard(condition) {}
  using Rewriter::rewrite;
  Expr rewrite(const Load& n, const Expr& self) override {
    return n.guard && equal(n.guard, guard) ? broadcast(load(n.buffer, n.index), self.lanes()) : self;
  }
  // These read other lanes.
  Expr rewrite(const Shuffle&, const Expr& self) override { return self; }
  Expr rewrite(const Intrinsic&, const Expr& self) override { return self; }
  const Expr& guard;
};

// Whether every lane of an integer is nonzero. A select may contain a divisor proved only where that side is chosen.
bool nonzero(const Expr& e, const Ranges& scope) {
  if (const Const* c = e.as<Const>()) return c->bits != 0;
  if (const Broadcast* b = e.as<Broadcast>()) return nonzero(b->value, scope);
  if (const Select* s = e.as<Select>()) {
    Ranges chosen = scope, other = scope;
    chosen.assume(s->condition);
    other.assume(unary(UnaryOp::bit_not, s->condition));
    if (nonzero(WhereGuardHolds(s->condition)(s->a), chosen) && nonzero(s->b, other)) return true;
  }
  return scope.nonzero(e) || scope.proves(e != zero(e.type())).value_or(false);
}

class Verifier : public ScopedWalk<Verifier> {
 public:
  Verifier(const Kernel& kernel, Stage stage) : ScopedWalk(Ranges(kernel)), kernel_(kernel), stage_(stage) {}

  void run() {
    for (const Scalar& scalar : kernel_.scalars) {
      const std::string what = "scalar " + scalar.var.name;
      if (!scalar.var.type.scalar()) fail(what, "a parameter has one lane");
      for (const Expr& bound : {scalar.min, scalar.max})
        if (bound) declared(bound, what);
      bind(scalar.var, what);
    }
    for (const Buffer& buffer : kernel_.buffers) {
      if (!buffer) fail("parameters", "a buffer is absent");
      const std::string what = std::string(to_string(buffer->role)) + " " + buffer->name;
      if (buffer->role == Role::temp) fail(what, "a parameter is in, out or inout");
      if (buffer->space != Space::global) fail(what, "a parameter is neither in registers nor shared");
      declare(buffer, what);
    }
    if (!kernel_.body) fail("body", "a kernel has a body");
    (*this)(kernel_.body);
    if (stage_ == Stage::lowered && is_gpu(kernel_))
      if (const std::string mismatch = gpu_structure_error(kernel_); !mismatch.empty()) fail("body", mismatch);
  }

 private:
  friend ScopedWalk;
  using ScopedWalk::visit;
  [[noreturn]] void fail(const std::string& node, const std::string& rule) const {
    throw Error(ErrorCode::invalid_argument,
                "kernel " + kernel_.name + " (" + to_string(stage_) + "): " + node + ": " + rule);
  }
  [[noreturn]] void fail(const Expr& e, const std::string& rule) const { fail(print(e), rule); }
  // A statement is named by its first line.
  [[noreturn]] void fail(const Stmt& s, const std::string& rule) const {
    const std::string text = print(s);
    std::string head = text.substr(0, text.find('\n'));
    if (head.ends_with(" {")) head.resize(head.size() - 2);
    fail(head, rule);
  }

  template <class At>
  void bind(const Var& v, const At& at) {
    if (!ids_.insert(v.id).second)
      fail(at, "the variable " + v.name + " is bound twice (id " + std::to_string(v.id) + ")");
    vars_.emplace(v.id, v.type);
  }

  template <class At>
  void declare(const Buffer& b, const At& at) {
    if (!ids_.insert(b->id).second)
      fail(at, "the buffer " + b->name + " is declared twice (id " + std::to_string(b->id) + ")");
    if (b->facts.exclusive && b->role != Role::temp) fail(at, "exclusive is a fact of temp buffers only");
    for (const auto* list : {&b->dims, &b->strides})
      for (const Expr& e : *list) declared(e, at);
    for (const Expr& dim : b->dims)
      if (as_int(dim).value_or(0) < 0) fail(at, "a dim is negative");
    for (const Expr& e : {b->facts.min, b->facts.max})
      if (e) declared(e, at);
    if (stage_ == Stage::lowered && b->space == Space::registers &&
        !std::all_of(b->dims.begin(), b->dims.end(), [](const Expr& d) { return as_int(d); }))
      fail(at, "a buffer in registers has constant dims");
    buffers_.emplace(b->id, b);
  }

  // Names in a declaration: values known at that point, and no memory.
  template <class At>
  void declared(const Expr& e, const At& at) {
    walk(e, [&](const Expr& part) {
      if (part.lanes() != 1 || part.as<Load>() || part.as<Intrinsic>())
        fail(at, "a declaration holds scalars and reads no memory, got " + print(part));
    });
    expr(e);
  }

  // Accesses.
  template <class At>
  void used(const Buffer& b, const At& at) const {
    const auto found = buffers_.find(b->id);
    if (found == buffers_.end()) fail(at, "the buffer " + b->name + " is neither a parameter nor allocated here");
    const BufferNode& declared = *found->second;
    if (b->dtype != declared.dtype || b->dims.size() != declared.dims.size() || b->role != declared.role ||
        b->space != declared.space)
      fail(at, "the buffer " + b->name + " is used with another dtype, rank, role or space than it was declared with");
  }
  template <class At>
  void access(const Buffer& b, const std::vector<Expr>& index, const At& at) {
    used(b, at);
    for (const Expr& i : index) {
      expr(i);
      if (stage_ == Stage::lowered && b->space == Space::registers && !constant_index(i))
        fail(at, "the buffer " + b->name + " is in registers: its index must be constant, got " + print(i));
    }
  }
  void writes(const Buffer& b, const Stmt& self) const {
    if (b->role == Role::in) fail(self, "the buffer " + b->name + " is an input");
  }

  void expr(const Expr& e) {
    if (!e) return;
    if (stage_ == Stage::authored && e.lanes() != 1)
      fail(e, "an authored kernel has scalars only, got " + to_string(e.type()));
    if (e.lanes() > max_lanes)
      fail(e, "a vector has at most " + std::to_string(max_lanes) + " lanes, got " + to_string(e.type()));
    std::visit([&](const auto& n) { node(n, e); }, e.node().value);
  }
  void node(const Const& n, const Expr& self) {
    const int bits = self.dtype() == DType::boolean ? 1 : 8 * size_of(self.dtype());
    if (bits < 64 && n.bits >> bits) fail(self, "a constant has the bits of its dtype, zero-extended");
  }
  void node(const Var& n, const Expr& self) {
    const auto found = vars_.find(n.id);
    if (found == vars_.end()) fail(self, "the variable is not bound here");
    if (found->second != n.type)
      fail(self, "the variable is bound as " + to_string(found->second) + ", used as " + to_string(n.type));
  }
  void node(const Load& n, const Expr& self) {
    access(n.buffer, n.index, self);
    expr(n.guard);
    expr(n.otherwise);
  }
  void node(const Unary& n, const Expr&) { expr(n.a); }
  void node(const Binary& n, const Expr& self) {
    operands({n.a, n.b});
    if (is_defined(n, scope_)) return;
    if (n.op == BinaryOp::floor_div || n.op == BinaryOp::floor_mod) fail(self, "the divisor must be proved nonzero");
    fail(self, "the shift count must be proved within [0, " + std::to_string(8 * size_of(n.b.dtype())) + ")");
  }
  void node(const Fma& n, const Expr&) { operands({n.a, n.b, n.c}); }
  void node(const Select& n, const Expr&) { operands({n.condition, n.a, n.b}); }
  void node(const Cast& n, const Expr&) { expr(n.value); }
  void node(const Bitcast& n, const Expr&) { expr(n.value); }
  void node(const Ramp& n, const Expr&) { operands({n.base, n.stride}); }
  void node(const Broadcast& n, const Expr&) { expr(n.value); }
  void node(const Shuffle& n, const Expr&) { operands({n.a, n.b}); }
  void node(const Intrinsic& n, const Expr& self) {
    switch (n.op) {
      case IntrinsicOp::prefetch:
        fail(self, "a prefetch stands in a statement of its own");
      case IntrinsicOp::all:
      case IntrinsicOp::any:
        operands(n.args);
        break;
    }
  }
  void node(const Math& n, const Expr& self) {
    if (stage_ == Stage::lowered) fail(self, "an elementary function is expanded when lowered");
    expr(n.a);
  }
  void operands(const std::vector<Expr>& list) {
    for (const Expr& e : list) expr(e);
  }

  void visit(const For& n, const Stmt& self) {
    expr(n.begin);
    expr(n.extent);
    kind(n, self);
    bind(n.var, self);
    below_vector_ += in_lanes(n.kind);
    below(n);
    below_vector_ -= in_lanes(n.kind);
    if (n.kind == ForKind::vector)
      if (const std::string why = not_widenable(n); !why.empty()) fail(self, "the loop cannot be widened: " + why);
    vars_.erase(n.var.id);
  }
  void kind(const For& n, const Stmt& self) {
    if (n.kind != ForKind::serial && stage_ == Stage::authored) fail(self, "an authored kernel has serial loops only");
    if (below_vector_ && (any_order(n.kind) || in_lanes(n.kind)))
      fail(self, "no loop below a vector loop is parallel or vector");
    const bool lowered = stage_ == Stage::lowered;
    const auto extent = as_int(n.extent);
    std::string conflict;
    switch (n.kind) {
      case ForKind::ordered:
        if (lowered) fail(self, "a lowered kernel has no ordered loop");
        break;
      case ForKind::serial:
      case ForKind::cooperative:
      case ForKind::matrix_unit:
        break;
      case ForKind::parallel:
      case ForKind::grid:
      case ForKind::thread:
      case ForKind::warp:
      case ForKind::fragment:
        conflict = loop_carried_conflict(n, scope_);
        break;
      case ForKind::lane:
        if (!extent || *extent < 2 || *extent > warp_lanes)
          fail(self, "a lane loop has a constant extent of 2 to " + std::to_string(warp_lanes));
        conflict = lowered ? loop_carried_conflict(n, scope_) : lane_order_conflict(n, scope_);
        break;
      case ForKind::vector:
        if (lowered) fail(self, "a lowered kernel has no vector loop");
        if (!extent || *extent < 2 || *extent > max_copies)
          fail(self, "a vector loop has a constant extent of 2 to " + std::to_string(max_copies));
        conflict = lane_order_conflict(n, scope_);
        break;
      case ForKind::unroll:
        if (lowered) fail(self, "a lowered kernel has no unroll loop");
        if (!extent || *extent > max_copies)
          fail(self, "an unroll loop has a constant extent of at most " + std::to_string(max_copies));
        break;
    }
    if (!conflict.empty()) fail(self, std::string("the ") + to_string(n.kind) + " loop is not proved: " + conflict);
  }
  void visit(const Let& n, const Stmt& self) {
    expr(n.value);
    bind(n.var, self);
    below(n);
    vars_.erase(n.var.id);
  }
  void visit(const Store& n, const Stmt& self) {
    writes(n.buffer, self);
    access(n.buffer, n.index, self);
    operands({n.value, n.guard});
    if (n.streaming && stage_ == Stage::authored) fail(self, "an authored kernel has no streaming stores");
  }
  void visit(const Accumulate& n, const Stmt& self) {
    writes(n.buffer, self);
    if (!is_arithmetic(n.buffer->dtype))
      fail(self, std::string("an accumulate goes into integers, f32 or f64, got ") + to_string(n.buffer->dtype));
    access(n.buffer, n.index, self);
    operands({n.value, n.factor, n.guard});
  }
  // The rest is as its loops have it.
  void visit(const Reduce& n, const Stmt& self) {
    if (stage_ == Stage::lowered) fail(self, "a lowered kernel has no reduction");
    writes(n.buffer, self);
    if (!is_arithmetic(n.buffer->dtype))
      fail(self, std::string("a reduction goes into integers, f32 or f64, got ") + to_string(n.buffer->dtype));
    if (any_of(self, [&](const Expr& e) { return e.as<Load>() && e.as<Load>()->buffer.same_as(n.buffer); }))
      fail(self, "a reduction does not read its destination " + n.buffer->name);
    (*this)(in_loops(n));
  }
  void visit(const If& n, const Stmt&) {
    expr(n.condition);
    below(n);
  }
  void visit(const Alloc& n, const Stmt& self) {
    declare(n.buffer, self);
    below(n);
    buffers_.erase(n.buffer->id);
  }
  void visit(const Check& n, const Stmt&) {
    operands({n.condition, n.position});
    below(n);
  }
  void visit(const Evaluate& n, const Stmt& self) {
    const Intrinsic& intrinsic = *n.value.as<Intrinsic>();
    if (intrinsic.op == IntrinsicOp::prefetch)
      access(intrinsic.buffer, intrinsic.args, self);
    else
      expr(n.value);
  }
  void visit(const Barrier&, const Stmt& self) {
    if (stage_ == Stage::authored) fail(self, "an authored kernel has no barriers");
  }

  const Kernel& kernel_;
  const Stage stage_;
  std::unordered_set<int64_t> ids_;              // every id ever bound
  std::unordered_map<int64_t, Type> vars_;       // currently in scope
  std::unordered_map<int64_t, Buffer> buffers_;  // parameters, and allocations in scope
  int below_vector_ = 0;
};

}  // namespace

const char* to_string(Stage stage) {
  switch (stage) {
    case Stage::authored:
      return "authored";
    case Stage::scheduled:
      return "scheduled";
    case Stage::lowered:
      return "lowered";
  }
  return "?";
}

void verify(const Kernel& kernel, Stage stage) { Verifier(kernel, stage).run(); }

bool constant_index(const Expr& e) {
  if (const Ramp* r = e.as<Ramp>()) return as_int(r->base) && as_int(r->stride);
  if (const Broadcast* b = e.as<Broadcast>()) return as_int(b->value).has_value();
  return as_int(e).has_value();
}

bool is_defined(const Binary& n, const Ranges& scope) {
  if (n.op == BinaryOp::floor_div || n.op == BinaryOp::floor_mod) return nonzero(n.b, scope);
  if (n.op != BinaryOp::shl && n.op != BinaryOp::shr) return true;
  if (scope.shift_count(n.b)) return true;
  const Expr low = zero(n.b.type()), high = broadcast(constant_int(n.b.dtype(), 8 * size_of(n.b.dtype())), n.b.lanes());
  return scope.proves((n.b >= low) & (n.b < high)) == true;
}

}  // namespace gradloom::ir
