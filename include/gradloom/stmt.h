#pragma once
// Statements of the loop-nest language, and the kernel that holds them. The same rules as for expressions: immutable
// values, checking constructors.
#include "gradloom/expr.h"

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

// serial: in order. parallel: any order, by any threads; iterations are proved disjoint. vector: the extent is a
// constant, one lane an iteration, statements run one after the other for all lanes. unroll: the extent is a constant,
// copies in order. On a GPU (verify_gpu.h): grid, thread and warp loops are parallel loops, over the blocks of a
// launch, the threads of a block and the warps of a block; a lane loop is a vector loop of 2 to 32 iterations that
// stays a loop when lowered: its iterations are the lanes of one warp; a cooperative loop is a serial loop that one
// launch does, with all its grid loops. Two fragment loops, one in the other, are parallel loops over the rows and
// columns of a tile of a warp: each element is one lane's. A matrix_unit loop in them is serial and adds products along
// k; a device whose matrix units do it adds in an order and with roundings of their own, the same every run: not for
// determinism `sequential`.
enum class ForKind : uint8_t {
  serial,
  parallel,
  vector,
  unroll,
  grid,
  thread,
  warp,
  lane,
  cooperative,
  fragment,
  matrix_unit
};
inline constexpr ForKind all_for_kinds[] = {
    ForKind::serial, ForKind::parallel, ForKind::vector,      ForKind::unroll,   ForKind::grid,       ForKind::thread,
    ForKind::warp,   ForKind::lane,     ForKind::cooperative, ForKind::fragment, ForKind::matrix_unit};
constexpr bool any_order(ForKind kind) {
  return kind == ForKind::parallel || kind == ForKind::grid || kind == ForKind::thread || kind == ForKind::warp ||
         kind == ForKind::fragment;
}
constexpr bool in_lanes(ForKind kind) { return kind == ForKind::vector || kind == ForKind::lane; }
constexpr bool on_gpu(ForKind kind) { return kind >= ForKind::grid; }
inline constexpr int warp_lanes = 32;

// A loop's handle: its variable's id. It joins a nest that is being written to the schedule of it.
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
// not be read soon. Ordered: lanes of the lane loop around may write one element, and do so in lane order after its
// body, which does not read it (passes/order_lanes.cpp).
struct Store {
  Buffer buffer;
  std::vector<Expr> index;
  Expr value;
  Expr guard;
  bool streaming = false, ordered = false;
};
enum class AccumulateOp : uint8_t { add, min, max, fma };
// buffer[index] = buffer[index] op value, one lane after the other, so conflicting lanes are well defined. fma: value *
// factor + buffer[index], rounded once. The buffer's dtype is neither f16 nor bf16. Ordered: as of a store.
struct Accumulate {
  Buffer buffer;
  std::vector<Expr> index;
  AccumulateOp op;
  Expr value;
  Expr factor;  // fma only
  Expr guard;
  bool atomic = false, ordered = false;
};
struct If {
  Expr condition;  // scalar boolean
  Stmt then_case, else_case;
};
// The buffer exists, with unspecified contents, in body. Up to 16 KiB on the stack (or in registers), else from the
// launcher.
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
// On a GPU: the lanes of a warp, the threads of a block or all blocks of a launch have done what stands before, and see
// what the others have written, before any of them goes on. passes/insert_barriers.cpp places them; where they may
// stand: verify_gpu.h.
enum class BarrierScope : uint8_t { warp, block, grid };
inline constexpr BarrierScope all_barrier_scopes[] = {BarrierScope::warp, BarrierScope::block, BarrierScope::grid};
struct Barrier {
  BarrierScope scope;
};

// The same limits as an expression's, for the statements of a nest. What the parser reads is within them.
inline constexpr int max_stmt_depth = 5000, max_stmt_nodes = 1 << 22;

struct StmtNode {
  std::variant<For, Block, Let, Store, Accumulate, If, Alloc, Check, Evaluate, Barrier> value;
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
Stmt if_then(Expr condition, Stmt then_case, Stmt else_case = {});
Stmt alloc(const Buffer& buffer, Stmt body);
Stmt check(Expr condition, Expr position, std::string argument, Stmt body);
Stmt evaluate(Expr value);
Stmt barrier(BarrierScope scope);

// A kernel's scalar parameter with its declared inclusive range (absent: any value). The interpreter checks the range
// at entry.
struct Scalar {
  Var var;
  Expr min, max;
};

struct Kernel {
  std::string name;
  std::vector<Scalar> scalars;
  std::vector<Buffer> buffers;  // the parameters, in the order of the caller's pointers: roles in, out, inout
  Stmt body;
};

const char* to_string(ForKind kind);
const char* to_string(AccumulateOp op);
const char* to_string(BarrierScope scope);

}  // namespace gradloom::ir
