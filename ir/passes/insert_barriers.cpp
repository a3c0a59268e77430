// Inserts the barriers at which the threads of a block, and the blocks of a cooperative loop, synchronise: before an
// access to a shared or global buffer that conflicts with an access to the same buffer since the last barrier (at least
// one of them a write).
//   - in a grid loop, outside thread and warp loops: a barrier of the block between two statements; at the head of a
//     serial loop's body where its iterations conflict with one another or with preceding accesses
//   - for a thread or warp loop that writes memory its bounds read: the bounds are evaluated into lets, followed by a
//     barrier
//   - in a warp loop, outside lane loops: likewise, of the warp; and one after each lane loop and pair of fragment
//     loops, so that the lanes reconverge. Matrix instructions of a product synchronise the warp themselves
//   - in a cooperative loop, outside grid loops: likewise, of the grid, between grid loops; where these do not conflict
//     and each block has one iteration at most, a barrier of the block, whose threads may still use its shared memory
// Requires: the form of verify_gpu.h; buffers have their final memory space. Gives: barriers; existing ones are
// recomputed. Breaks: nothing; but a later pass that changes memory accesses must keep the barriers correct.
#include <algorithm>
#include <unordered_set>
#include <utility>

#include "ir/analysis/fragment_product.h"
#include "ir/analysis/verify_gpu.h"
#include "ir/index_math.h"
#include "ir/passes/passes.h"
#include "ir/rewrite.h"

namespace gradloom::ir {
namespace {

using Buffers = std::unordered_set<int64_t>;  // by id

// The shared and global buffers that a part of a kernel accesses.
struct Touched {
  Buffers reads, writes;
  void add(const Touched& other) {
    reads.insert(other.reads.begin(), other.reads.end());
    writes.insert(other.writes.begin(), other.writes.end());
  }
  // Whether the two conflict.
  bool conflicts(const Touched& earlier) const {
    const auto intersect = [](const Buffers& a, const Buffers& b) {
      return std::any_of(a.begin(), a.end(), [&](int64_t id) { return b.contains(id); });
    };
    return intersect(writes, earlier.writes) || intersect(writes, earlier.reads) || intersect(reads, earlier.writes);
  }
};

class Barriers : public Rewriter {
 private:
  enum class Part : uint8_t { host, cooperative, block, warp };
  using Rewriter::rewrite;

  Stmt rewrite(const Barrier&, const Stmt&) override { return {}; }
  Stmt rewrite(const For& n, const Stmt& self) override {
    if (n.kind == ForKind::grid) return part_ == Part::cooperative ? phase(n, self) : in_part(Part::block, n, self);
    if (n.kind == ForKind::cooperative) {
      blocks_ = least_blocks(n);
      return in_part(Part::cooperative, n, self);
    }
    if (part_ == Part::host) return Rewriter::rewrite(n, self);
    if (n.kind == ForKind::serial) return part_ == Part::warp ? serial_in_warp(n) : serial(n);
    return side_by_side(n, self);
  }
  Stmt in_part(Part part, const For& n, const Stmt& self) {
    const Part outer = std::exchange(part_, part);
    const Touched before = std::exchange(since_, {});
    const Stmt result = part == Part::cooperative ? serial(n) : Rewriter::rewrite(n, self);
    part_ = outer, since_ = before;
    return result;
  }

  // A grid loop in a cooperative loop: one phase of it.
  Stmt phase(const For& n, const Stmt& self) {
    const Touched all = touched(n.body);
    Stmt first = before(all);
    if (!first && each_block_once(n, blocks_)) first = barrier(BarrierScope::block);
    return block({first, in_part(Part::block, n, self)});
  }
  Stmt serial(const For& n) {
    const Touched entry = since_, all = touched(n.body), bounds = touched({n.begin, n.extent});
    const Stmt first = before(bounds);
    Stmt head;
    if ((!is_const(n.extent, 1) && all.conflicts(all)) || all.conflicts(since_)) head = meet();
    const Stmt body = block({head, (*this)(n.body)});
    since_.add(entry), since_.add(bounds);  // the body may not have run
    return block({first, for_loop(n.var, n.begin, n.extent, n.kind, body)});
  }
  // In most cases the lanes have already synchronised at the end of the body.
  Stmt serial_in_warp(const For& n) {
    const Touched all = touched(n.body), bounds = touched({n.begin, n.extent});
    const Stmt first = before(bounds);
    const Touched entry = since_;
    const bool conflicts = all.conflicts(entry);
    if (conflicts) since_ = {};
    Stmt body = block({(*this)(n.body)});
    if (conflicts || all.conflicts(since_)) body = block({barrier(BarrierScope::warp), body});
    since_.add(entry), since_.add(bounds);  // the body may not have run
    return block({first, for_loop(n.var, n.begin, n.extent, n.kind, body)});
  }
  // A thread or warp loop; in a warp loop, a lane loop or pair of fragment loops.
  Stmt side_by_side(const For& n, const Stmt& self) {
    const Touched body = touched(n.body), bounds = touched({n.begin, n.extent});
    Touched all = body;
    all.add(bounds);
    const Stmt first = before(all);
    Stmt loop = n.kind == ForKind::warp ? in_part(Part::warp, n, self) : self;
    if (body.conflicts(bounds)) {
      loop = bounds_first(*loop.as<For>());
      since_ = body;
    }
    std::string mismatch;
    if (part_ != Part::warp || (n.kind == ForKind::fragment && match_fragment_product(n, mismatch).sums))
      return block({first, loop});
    return block({first, loop, meet()});
  }
  // Evaluates the bounds and synchronises before an iteration changes memory that they read.
  Stmt bounds_first(const For& n) {
    Expr begin = n.begin, extent = n.extent;
    std::vector<Let> kept;
    for (Expr* bound : {&begin, &extent}) {
      if (!has_load(*bound)) continue;
      kept.push_back({make_var("bound"), *bound, {}});
      *bound = var(kept.back().var);
    }
    Stmt loop = block({meet(), for_loop(n.var, begin, extent, n.kind, n.body)});
    for (const Let& bound : kept) loop = let(bound.var, bound.value, loop);
    return loop;
  }

  Stmt rewrite(const Let& n, const Stmt& self) override {
    const Stmt first = before(touched({n.value}));
    return block({first, Rewriter::rewrite(n, self)});
  }
  Stmt rewrite(const If& n, const Stmt&) override {
    const Stmt first = before(touched({n.condition}));
    const Touched entry = since_;
    const Stmt then_case = (*this)(n.then_case);
    const Touched after = std::exchange(since_, entry);
    const Stmt else_case = (*this)(n.else_case);
    since_.add(after);
    return block({first, if_then(n.condition, then_case, else_case)});
  }
  Stmt rewrite(const Check& n, const Stmt& self) override {
    const Stmt first = before(touched({n.condition, n.position}));
    const Touched entry = since_;
    const Stmt result = Rewriter::rewrite(n, self);
    since_.add(entry);
    return block({first, result});
  }
  Stmt rewrite(const Store& n, const Stmt& self) override { return write(n.buffer, n.index, {n.value, n.guard}, self); }
  Stmt rewrite(const Accumulate& n, const Stmt& self) override {
    return write(n.buffer, n.index, {n.value, n.factor, n.guard}, self);
  }
  Stmt write(const Buffer& b, const std::vector<Expr>& index, std::initializer_list<Expr> values, const Stmt& self) {
    Touched all = touched(index);
    all.add(touched(values));
    if (!own_.contains(b->id)) all.writes.insert(b->id);
    return block({before(all), self});
  }
  Stmt rewrite(const Alloc& n, const Stmt& self) override {
    if (part_ >= Part::block && n.buffer->space != Space::shared) own_.insert(n.buffer->id);
    if (n.buffer->space == Space::per_block) per_block_.insert(n.buffer->id);
    return Rewriter::rewrite(n, self);
  }

  Stmt before(const Touched& next) {
    if (part_ == Part::host) return {};
    const Stmt first = next.conflicts(since_) ? meet() : Stmt();
    since_.add(next);
    return first;
  }
  Stmt meet() {
    since_ = {};
    return barrier(part_ == Part::cooperative ? BarrierScope::grid
                   : part_ == Part::block     ? BarrierScope::block
                                              : BarrierScope::warp);
  }

  Touched touched(const std::vector<Expr>& exprs) const {
    Touched t;
    for (const Expr& e : exprs)
      if (e) walk(e, [&](const Expr& x) { note_read(x, own_, t); });
    return t;
  }
  // Per-block buffers are invisible to other blocks and cannot conflict between them.
  Touched touched(const Stmt& s) const {
    Touched t;
    Buffers own = own_;
    const bool blocks = part_ == Part::cooperative;
    if (blocks) own.insert(per_block_.begin(), per_block_.end());
    const auto write = [&](const Buffer& b) {
      if (!own.contains(b->id)) t.writes.insert(b->id);
    };
    walk(
        s,
        [&](const Stmt& x) {
          if (const auto* n = x.as<Alloc>(); n && (blocks || n->buffer->space != Space::shared))
            own.insert(n->buffer->id);
          if (const auto* n = x.as<Store>()) write(n->buffer);
          if (const auto* n = x.as<Accumulate>()) write(n->buffer);
        },
        [&](const Expr& x) { note_read(x, own, t); });
    return t;
  }
  static void note_read(const Expr& x, const Buffers& own, Touched& t) {
    const auto* n = x.as<Load>();
    if (n && n->buffer->role != Role::in && !own.contains(n->buffer->id)) t.reads.insert(n->buffer->id);
  }

  Part part_ = Part::host;
  Touched since_;       // accesses since the last barrier
  Buffers own_;         // private to a thread
  Buffers per_block_;   // private to a block, live across the grid loops of a cooperative loop
  int64_t blocks_ = 1;  // minimum number of blocks of the cooperative loop
};

}  // namespace

Kernel insert_barriers(const Kernel& kernel) { return Barriers()(kernel); }

}  // namespace gradloom::ir
