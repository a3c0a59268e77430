#pragma once
// Statements of the loop-nest language, and the kernel that holds them. The same rules as for expressions: immutable
// values, checking constructors.
#include "gradloom/expr.h"

#pragma GCC visibility push(default)
namespace gradloom::ir {

struct StmtNode;

class Stmt {
 public:
  Stmt() = default;  // no statement
  explicit Stmt(std::shared_ptr<const StmtNode> node) : node_(std::move(node)) {}
  explicit operator bool() const { return node_ != nullptr; }
  const StmtNode& node() const { return *node_; }
  const StmtNode* get() const { return node_.get(); }
  bool same_as(const Stmt& other) const { return node_ == other.node_; }
  template <class T>
  const T* as() const;

 private:
  std::shared_ptr<const StmtNode> node_;
};

// Loop kinds:
//   serial: in order.
//   parallel: any order, by any threads; iterations are proved disjoint.
//   vector: constant extent, one lane per iteration, each statement runs for all lanes before the next.
//   unroll: constant extent, copies in order.
//   ordered: serial, and no schedule step changes that: a step that made the loop relies on its order without a proof.
// On a GPU:
//   grid, thread, warp: parallel loops over the blocks of a launch, the threads of a block, the warps of a block.
//   lane: a vector loop of 2 to 32 iterations that stays a loop when lowered: its iterations are the lanes of one warp.
//   cooperative: a serial loop executed, with all its grid loops, by one launch.
//   fragment: two nested parallel loops over the rows and columns of a warp's tile; each element belongs to one lane.
//   matrix_unit: a serial reduction over k inside two fragment loops. A device whose matrix units execute it adds in
//     its own order and with its own roundings, the same in every run: not for determinism `sequential`.
enum class ForKind : uint8_t {
  serial,
  parallel,
  vector,
  unroll,
  ordered,
  grid,
  thread,
  warp,
  lane,
  cooperative,
  fragment,
  matrix_unit
};
inline constexpr ForKind all_for_kinds[] = {
    ForKind::serial, ForKind::parallel, ForKind::vector, ForKind::unroll,      ForKind::ordered,  ForKind::grid,
    ForKind::thread, ForKind::warp,     ForKind::lane,   ForKind::cooperative, ForKind::fragment, ForKind::matrix_unit};
constexpr bool any_order(ForKind kind) {
  return kind == ForKind::parallel || kind == ForKind::grid || kind == ForKind::thread || kind == ForKind::warp ||
         kind == ForKind::fragment;
}
constexpr bool in_lanes(ForKind kind) { return kind == ForKind::vector || kind == ForKind::lane; }
constexpr bool on_gpu(ForKind kind) { return kind >= ForKind::grid; }
inline constexpr int warp_lanes = 32;

// A loop's handle: the id of its variable. It links a nest being built to its schedule.
using Loop = int64_t;

// for var in [begin, begin + extent): body. Both bounds are i64 scalars, read once on entry; extent <= 0 runs nothing.
struct For {
  Var var;
  Expr begin, extent;
  ForKind kind;
  Stmt body;
};
struct Block {
  std::vector<Stmt> stmts;
};
struct Let {  // evaluates value once, before body
  Var var;
  Expr value;
  Stmt body;
};
// buffer[index] = value, in lane order. Lanes whose guard is false write nothing. Streaming hints that the line will
// not be read soon. Ordered: lanes of the enclosing lane loop may write the same element, and do so in lane order after
// its body, which does not read it.
struct Store {
  Buffer buffer;
  std::vector<Expr> index;
  Expr value;
  Expr guard;
  bool streaming = false, ordered = false;
};
enum class AccumulateOp : uint8_t { add, min, max, fma, mul };
// buffer[index] = buffer[index] op value, one lane after the other, so that conflicting lanes are well defined. fma:
// value * factor + buffer[index], rounded once. The buffer's dtype is neither f16 nor bf16; mul's is no bool. Ordered:
// as in a store.
struct Accumulate {
  Buffer buffer;
  std::vector<Expr> index;
  AccumulateOp op;
  Expr value;
  Expr factor;  // fma only
  Expr guard;
  bool atomic = false, ordered = false;
};
// The order in which the terms of a Reduce are folded. A part of its meaning: it decides the bits of a sum of floats.
//   loop: one after the other, the variables as nested loops.
//   tree: of the innermost variable's terms x_0 .. x_{n-1}, blocks of `block` (a multiple of 16; the last may be
//   short).
//     A block's fold begins with 16 strided partials p_l = ((identity op x_l) op x_{l+16}) op ..., then p_l = p_l op
//     p_{l+h} for h = 8, 4, 2, 1 and l < h; p_0 is the block's. Parts of 64 blocks: a part's fold is the identity op,
//     in order, its blocks'; the total is the identity op, in order, the parts' (just the blocks', where n is known to
//     be one part: the same bits). The totals of an inner variable are the terms of the next outer one, in blocks of
//     16, without parts. So lanes, and threads, can share one sum.
//   chunks: the first variable's values in chunks of `block`; a chunk's fold is that of its loops, and the total is the
//     identity op, in order, the chunks'. So threads can share one sum.
//   any: the author does not mind. It is `loop` but where a step declares another (Schedule::reassociate).
// Min, max and integers have the same bits in any order.
inline constexpr int64_t sum_partials = 16, sum_part_blocks = 64;
struct SumOrder {
  enum Kind : uint8_t { loop, tree, chunks, any } kind = loop;
  int64_t block = 0;  // of tree and chunks only
  static SumOrder in_loops() { return {}; }
  // 256: terms that are neighbours in memory, each partial a lane. 16: terms that are rows apart, as a column's.
  static SumOrder in_tree(int64_t block = 256) { return {tree, block}; }
  static SumOrder in_chunks(int64_t length) { return {chunks, length}; }  // up to 2^30
  static SumOrder in_any() { return {any}; }
  bool operator==(const SumOrder&) const = default;
};
std::string to_string(SumOrder order);  // as in text: "tree 256"
// buffer[index] = the fold of `value` (fma: value * factor, rounded once with its addition to a partial) over
// variables, outermost first, from op's identity: +0.0, or 1, or the largest or least value, infinities of floats.
// Bounds are read once on entry to their variable, and may mention outer ones; an extent <= 0 has no terms. Terms whose
// guard is false are left out, and not evaluated. `lets` are evaluated with each term, in order. Nothing of it reads
// the buffer.
struct Reduce {
  struct Range {
    Var var;
    Expr begin, extent;
  };
  struct Definition {
    Var var;
    Expr value;
  };
  std::vector<Range> ranges;
  Buffer buffer;
  std::vector<Expr> index;
  AccumulateOp op;
  SumOrder order;
  std::vector<Definition> lets;
  Expr value;
  Expr factor;  // fma only
  Expr guard;
};
// The loops that a reduction became, for further steps.
struct ReductionLoops {
  Loop tiles = 0;             // over tiles of columns; 0: none
  Loop parts = 0;             // over parts of the sum that threads may share; 0: none
  std::vector<Loop> ordered;  // over the terms of a fold in order; of several variables the innermost's
  std::vector<Loop> stored;   // over a tile's columns: identities, and what comes before and after the reduction
  std::vector<Loop> summed;   // over a tile's columns: terms
  std::vector<Loop> steps;    // over the groups of 16 terms of a block
  std::vector<Loop> lanes;    // over the 16 partials, or half of them, or fewer
  std::vector<Loop> quads;    // over folds of four partials
};
// The same of a tree in stages.
struct StagedLoops {
  std::vector<Loop> grid;                 // parts, loops and variables around, tiles; outermost first, perfectly nested
  std::vector<std::vector<Loop>> phases;  // of a tile: each needs all of what the one before stores
  std::vector<Loop> totals;               // the nests that fold what is stored, in order
};
struct If {
  Expr condition;  // scalar boolean
  Stmt then_case, else_case;
};
// Allocates the buffer, with unspecified contents, for the scope of body. Up to 16 KiB on the stack (or in registers),
// larger ones by the launcher.
struct Alloc {
  Buffer buffer;
  Stmt body;
};
// Guards a data-dependent index. When every lane of condition holds, body runs; else the smallest position among the
// failing lanes is recorded in the kernel's status (if smaller than what is there), and body does not run. After a
// failure, what the kernel's outputs hold is unspecified.
struct Check {
  Expr condition;        // boolean
  Expr position;         // i64, same lanes or scalar
  std::string argument;  // the input tensor at fault, for the message
  Stmt body;
};
struct Evaluate {  // for an intrinsic's effect
  Expr value;
};
// A GPU barrier: the lanes of a warp, the threads of a block or all blocks of a launch complete the preceding
// statements and see one another's writes before any of them continues. Lowering inserts them where one statement needs
// what another thread has written; nests are authored and scheduled without.
enum class BarrierScope : uint8_t { warp, block, grid };
inline constexpr BarrierScope all_barrier_scopes[] = {BarrierScope::warp, BarrierScope::block, BarrierScope::grid};
struct Barrier {
  BarrierScope scope;
};

// The same limits as an expression's, for the statement tree. The parser accepts nothing beyond them.
inline constexpr int max_stmt_depth = 5000, max_stmt_nodes = 1 << 22;

struct StmtNode {
  std::variant<For, Block, Let, Store, Accumulate, Reduce, If, Alloc, Check, Evaluate, Barrier> value;
  TreeSize tree;  // of statements alone
};

template <class T>
const T* Stmt::as() const {
  return node_ ? std::get_if<T>(&node_->value) : nullptr;
}

Stmt for_loop(Var v, Expr begin, Expr extent, ForKind kind, Stmt body);
Stmt block(std::vector<Stmt> stmts);  // flattens nested blocks, drops absent statements; one statement is itself
Stmt let(Var v, Expr value, Stmt body);
Stmt store(const Buffer& buffer, std::vector<Expr> index, Expr value, Expr guard = {}, bool streaming = false,
           bool ordered = false);
Stmt accumulate(const Buffer& buffer, std::vector<Expr> index, AccumulateOp op, Expr value, Expr factor = {},
                Expr guard = {}, bool atomic = false, bool ordered = false);
Stmt reduce(Reduce node);  // all of it scalar
Stmt if_then(Expr condition, Stmt then_case, Stmt else_case = {});
Stmt alloc(const Buffer& buffer, Stmt body);
Stmt check(Expr condition, Expr position, std::string argument, Stmt body);
Stmt evaluate(Expr value);
Stmt barrier(BarrierScope scope);

// A kernel's scalar parameter with its declared inclusive range (absent: any value). The interpreter checks the range
// at entry.
struct Scalar {
  Var var = {};
  Expr min = {}, max = {};
};

struct Kernel {
  std::string name = {};
  std::vector<Scalar> scalars = {};
  std::vector<Buffer> buffers = {};  // the parameters, in the order of the caller's pointers: roles in, out, inout
  Stmt body = {};
};

const char* to_string(ForKind kind);
const char* to_string(AccumulateOp op);
const char* to_string(BarrierScope scope);

}  // namespace gradloom::ir

#pragma GCC visibility pop
