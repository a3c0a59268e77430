// Assigns memory spaces to the buffers of a GPU's blocks, warps and threads.
//   - allocated in the block part: in registers, replicated per thread, if small and never written by individual
//     threads; else shared, while there is room and dims are constant; else scratch, one part per block
//   - in the warp part: in registers, replicated per lane, if small and never written by individual lanes; else shared
//     or scratch, one part per warp
//   - scratch of a launch in a cooperative loop is allocated outside that loop
//   - in the thread part: private to the thread if small and of constant dims; else scratch, one part per thread,
//     interleaved so that accesses of adjacent threads coalesce
// Requires: the form of verify_gpu.h except for buffers. Gives: that form. Breaks: nothing.
#include <algorithm>

#include "gradloom/refusal.h"
#include "ir/analysis/scoped_walk.h"
#include "ir/index_math.h"
#include "ir/passes/host_bound.h"
#include "ir/passes/passes.h"
#include "ir/redirect.h"
#include "ir/rewrite.h"
#include "ir/scalar_program.h"

namespace gradloom::ir {
namespace {

constexpr int64_t uniform_bytes = 256;  // of a buffer replicated per thread
constexpr int64_t thread_bytes = 1024;  // of a thread-private buffer
constexpr int64_t shared_alignment = 16;

std::optional<int64_t> constant_bytes(const Buffer& b) {
  int64_t bytes = size_of(b->dtype);
  for (const Expr& dim : b->dims) {
    const std::optional<int64_t> n = as_int(dim);
    if (!n || (*n > 0 && bytes > (int64_t{1} << 40) / *n)) return std::nullopt;
    bytes *= *n;
  }
  return bytes;
}

// Whether a loop of one of these kinds writes the buffer.
bool written_in(const Stmt& s, const Buffer& b, std::initializer_list<ForKind> kinds) {
  return any_of(s, [&](const Stmt& x) {
    const For* f = x.as<For>();
    return f && std::find(kinds.begin(), kinds.end(), f->kind) != kinds.end() && writes(x, b);
  });
}

// The relocation of a buffer: accesses get these indices before and after their own.
struct Move {
  std::vector<Expr> before, after;
  std::vector<Expr> operator()(const std::vector<Expr>& index) const {
    std::vector<Expr> all = before;
    all.insert(all.end(), index.begin(), index.end());
    all.insert(all.end(), after.begin(), after.end());
    return all;
  }
};

// Allocates the scratch of launches around them.
Stmt around(const std::vector<Buffer>& scratch, Stmt s) {
  for (const Buffer& b : scratch) s = alloc(b, s);
  return s;
}

class Launch : public ScopedWalk<Launch> {
 public:
  // `around`: variables that expressions outside the launch may mention; `scope`: facts known there.
  Launch(const std::vector<Var>& around, const Ranges& scope, int64_t shared_bytes)
      : ScopedWalk(scope), around_(around), outer_(scope), shared_left_(shared_bytes) {}

  Stmt place(const For& grid, const Stmt& self) {
    walk(grid.body, [&](const Stmt& s) {
      const Alloc* a = s.as<Alloc>();
      if (a && a->buffer->space == Space::shared && !reserve(a->buffer, 1))
        throw LoweringRefusal(ErrorCode::unsupported, "place_buffers: the shared buffer " + a->buffer->name +
                                                          " does not fit into the shared memory that a block has");
    });
    levels_.push_back(&grid);
    scope_.enter(grid);
    (*this)(grid.body);
    if (moves_.empty()) return self;
    Stmt body = redirect(grid.body, moves_);
    for (const Buffer& b : block_) body = alloc(b, body);
    return for_loop(grid.var, grid.begin, grid.extent, grid.kind, body);
  }
  const std::vector<Buffer>& scratch() const { return scratch_; }

 private:
  friend ScopedWalk;
  using ScopedWalk::visit;
  void visit(const For& n, const Stmt&) {
    const bool level = on_gpu(n.kind);
    if (level) levels_.push_back(&n);
    below(n);
    if (level) levels_.pop_back();
  }
  void visit(const If& n, const Stmt&) {
    const bool outside =
        is_scalar_arithmetic(n.condition) && uses_only(n.condition, around_) && !has_variable_divisor(n.condition);
    if (outside) guards_.push_back(n.condition);
    within(n.then_case, n.condition);
    if (outside) guards_.back() = unary(UnaryOp::bit_not, n.condition);
    within(n.else_case, n.condition, false);
    if (outside) guards_.pop_back();
  }
  void visit(const Alloc& n, const Stmt&) {
    choose(n);
    below(n);
  }

  bool reserve(const Buffer& b, int64_t copies) {
    const std::optional<int64_t> bytes = constant_bytes(b);
    if (!bytes || copies > shared_left_) return false;
    const int64_t need = (*bytes * copies + shared_alignment - 1) / shared_alignment * shared_alignment;
    if (*bytes > shared_left_ || need > shared_left_) return false;
    shared_left_ -= need;
    return true;
  }

  void choose(const Alloc& n) {
    const Buffer& b = n.buffer;
    if (b->space == Space::shared || b->space == Space::per_thread || b->space == Space::per_warp) return;
    const ForKind part = levels_.back()->kind;
    const std::optional<int64_t> bytes = constant_bytes(b);
    if (part == ForKind::thread || part == ForKind::lane || part == ForKind::fragment) {
      if (bytes && *bytes <= thread_bytes) return;
      return to_scratch(b);
    }
    const bool alone = part == ForKind::grid ? written_in(n.body, b, {ForKind::thread, ForKind::warp})
                                             : written_in(n.body, b, {ForKind::lane, ForKind::fragment});
    if (!alone && bytes && *bytes <= uniform_bytes) return;
    const int64_t copies = part == ForKind::grid ? 1 : as_int(levels_.back()->extent).value_or(0);
    if (copies < 1 || !reserve(b, copies)) return to_scratch(b);
    Move move;
    if (part != ForKind::grid) move.before.push_back(place_of(*levels_.back()));
    std::vector<Expr> dims = b->dims;
    if (part != ForKind::grid) dims.insert(dims.begin(), copies);
    const Buffer to = moved(b, Space::shared, std::move(dims), part == ForKind::grid);
    if (part != ForKind::grid) block_.push_back(to);
    moves_[b->id] = {to, std::move(move)};
  }

  void to_scratch(const Buffer& b) {
    Move move;
    std::vector<Expr> dims, last;
    for (const For* level : levels_) {
      // The thread index goes innermost, so that accesses of adjacent threads coalesce.
      const bool side_by_side = level->kind == ForKind::thread || level->kind == ForKind::lane;
      (side_by_side ? move.after : move.before).push_back(place_of(*level));
      (side_by_side ? last : dims).push_back(outside(level->extent, b));
    }
    for (const Expr& dim : b->dims) dims.push_back(outside(dim, b));
    dims.insert(dims.end(), last.begin(), last.end());
    // If no iteration executes this, nothing needs to be allocated.
    for (const Expr& condition : guards_)
      if (!as_int(dims[0])) dims[0] = select(condition, dims[0], 0);
    scratch_.push_back(moved(b, Space::global, std::move(dims), false));
    moves_[b->id] = {scratch_.back(), std::move(move)};
  }

  Expr place_of(const For& level) const {
    if (has_load(level.begin))
      throw LoweringRefusal(ErrorCode::unsupported,
                            "place_buffers: loop " + level.var.name + " begins at a value from memory");
    return index_sub(var(level.var), level.begin);
  }

  // The dim, or an upper bound of it, in terms known outside the launch.
  Expr outside(const Expr& e, const Buffer& b) const {
    if (const Expr bound = at_most(e, around_, scope_, outer_); bound && as_int(bound).value_or(0) <= max_elements)
      return bound;
    throw LoweringRefusal(ErrorCode::unsupported,
                          "place_buffers: nothing outside the launch bounds the size of buffer " + b->name);
  }
  Buffer moved(const Buffer& b, Space space, std::vector<Expr> dims, bool alike) const {
    BufferNode node = *b;
    node.space = space;
    node.dims = std::move(dims);
    if (alike) return make_buffer(std::move(node));  // under its own id
    node.id = 0;
    node.strides.clear();
    node.facts.nondecreasing = node.facts.injective = false;
    drop_open_facts(node, around_);
    return make_buffer(std::move(node));
  }

  const std::vector<Var>& around_;
  const Ranges outer_;
  std::vector<Expr> guards_;  // conditions enclosing the current statement in the launch, evaluable outside
  int64_t shared_left_;
  std::vector<const For*> levels_;       // enclosing GPU loops, from the grid inwards
  std::vector<Buffer> block_, scratch_;  // allocated at the start of the block, and around the launch
  Redirections moves_;
};

// Traverses the host part.
struct Launches : Rewriter {
  Launches(const Kernel& kernel, int64_t bytes) : scope(kernel), shared_bytes(bytes) {
    for (const Scalar& s : kernel.scalars) known.push_back(s.var);
  }
  using Rewriter::rewrite;
  Stmt rewrite(const For& n, const Stmt& self) override {
    if (n.kind == ForKind::grid) {
      Launch launch(cooperative ? outside : known, scope, shared_bytes - kept_bytes);
      const Stmt placed = launch.place(n, self);
      if (!cooperative) return around(launch.scratch(), placed);
      scratch.insert(scratch.end(), launch.scratch().begin(), launch.scratch().end());
      return placed;
    }
    if (n.kind != ForKind::cooperative) return inside(n, self);
    cooperative = true, outside = known;
    const Stmt result = around(scratch, inside(n, self));
    cooperative = false, scratch.clear();
    return result;
  }
  Stmt rewrite(const Alloc& n, const Stmt& self) override {
    if (n.buffer->space != Space::per_block) return Rewriter::rewrite(n, self);
    const int64_t before = kept_bytes;
    kept_bytes += block_bytes(n.buffer);
    if (kept_bytes > shared_bytes)
      throw LoweringRefusal(ErrorCode::unsupported,
                            "place_buffers: the buffer " + n.buffer->name +
                                ", a part a block, does not fit into the shared memory that a block has");
    const Stmt result = Rewriter::rewrite(n, self);
    kept_bytes = before;
    return result;
  }
  Stmt rewrite(const Let& n, const Stmt& self) override { return inside(n, self); }
  template <class Binding>
  Stmt inside(const Binding& n, const Stmt& self) {
    const Ranges::Scope inner(scope, n);
    known.push_back(n.var);
    const Stmt result = Rewriter::rewrite(n, self);
    known.pop_back();
    return result;
  }
  // The size of one block's part.
  static int64_t block_bytes(const Buffer& b) {
    int64_t bytes = size_of(b->dtype);
    for (size_t d = 1; d < b->dims.size(); ++d)
      bytes = std::min(bytes * std::clamp<int64_t>(as_int(b->dims[d]).value_or(most_bytes), 0, most_bytes), most_bytes);
    return (bytes + shared_alignment - 1) / shared_alignment * shared_alignment;
  }
  static constexpr int64_t most_bytes = int64_t{1} << 30;

  std::vector<Var> known, outside;  // variables in scope here, and outside the enclosing cooperative loop
  std::vector<Buffer> scratch;      // of the enclosing cooperative loop
  bool cooperative = false;
  Ranges scope;
  const int64_t shared_bytes;
  int64_t kept_bytes = 0;  // of the per_block buffers in scope
};

}  // namespace

Kernel place_buffers(const Kernel& kernel, int64_t shared_bytes) { return Launches(kernel, shared_bytes)(kernel); }

}  // namespace gradloom::ir
