#pragma once
// Internals of emit_cuda: a grid loop, or a cooperative loop, becomes one __global__ function. Private to the folder.
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "codegen/cuda/module.h"
#include "ir/analysis/fragment_product.h"
#include "ir/analysis/ranges.h"

namespace gradloom::codegen {

// The execution level of a statement, as in ir/analysis/verify_gpu.h (emit_module handles the host level).
enum class Part : uint8_t { cooperative, block, warp, thread };

// One C++ expression per lane. `narrow`: an i64 value of C++ type int.
struct Text {
  std::vector<std::string> lanes;
  bool narrow = false;
  bool atom = false;   // a name or a literal: repeating it costs nothing
  int precedence = 0;  // ir::precedence; 0: unknown
};

// What the host part passes to a function, by IR id.
struct HostScope {
  std::unordered_map<int64_t, int> slots;    // variable -> slot
  std::unordered_map<int64_t, int> buffers;  // kernel parameter -> its index
  std::unordered_map<int64_t, int> scratch;  // allocation in the host part -> its scratch block
};

class FunctionEmitter {
 public:
  FunctionEmitter(const HostScope& host, const ir::Ranges& ranges, std::string name)
      : host_(host), ranges_(ranges), name_(std::move(name)) {}
  // Returns the function's description and appends its source to `text`.
  CudaFunction emit(const ir::For& loop, std::string& text);

 private:
  struct Place {
    std::string name;
    bool own = false;                      // private to a thread
    bool of_block = false;                 // per block: shared memory
    std::vector<std::string> variables{};  // one per element: private, and every index constant
  };
  // An ordered write of a lane loop: the body records it; after the body all lanes commit together, in lane order.
  struct Deferred {
    std::string type, on, place, value, factor;
    const ir::StmtNode* node;
    bool near;  // the element is in shared memory, and of 32 bits or more
  };

  // emit_function.cpp
  void grid_function(const ir::For& grid);
  void grid_loop(
      const ir::For& grid,
      bool strides);  // the iteration at this block's index; `strides`: also those at multiples of the grid size on
  void statement(const ir::Stmt& s);
  template <class Node>
  void emit(const Node& n, const ir::StmtNode*) {
    emit(n);
  }
  void emit(const ir::Block& n);
  void emit(const ir::Let& n);
  void emit(const ir::If& n);
  void emit(const ir::Alloc& n);
  void emit(const ir::Check& n);
  void emit(const ir::Evaluate& n);
  void emit(const ir::Reduce& n);
  void emit(const ir::Barrier& n);
  int threads_of(const ir::Stmt& body) const;
  void begin(std::initializer_list<ir::Expr> used);  // starts a statement: clears the memo of the last one
  // Wraps a write that one thread executes per block or warp.
  void once(const ir::Buffer& b, const std::function<void()>& write);

  // emit_cooperative.cpp
  void find_exchanged(const ir::For& loop);
  void cooperative_function(const ir::For& loop);
  void phase(const ir::For& grid);

  // emit_loops.cpp
  void emit(const ir::For& n);
  void serial_loop(const ir::For& n);
  void thread_loop(const ir::For& n);
  void warp_loop(const ir::For& n);
  void lane_loop(const ir::For& n);
  void fragment_loops(const ir::For& rows);
  void fragment_product(const ir::FragmentProduct& p);
  std::vector<Deferred> defer(const ir::For& lanes);
  // Runs `body` in a scope of its own, with the range of the loop's variable known.
  template <class Body>
  void with_variable(const ir::For& n, Body&& body);
  // Hoists divisions by constants, if the body repeats them, to where this loop's variable becomes known. The compiler
  // would find most of them itself, but in a good part of its time.
  void name_divisions(const ir::For& n);
  std::string loop_variable(const ir::For& n, bool& narrow, int past = 0);
  bool counts_in_range(const ir::For& n, int64_t past = 0) const;
  // The loop variable in iteration `k` (C++ of a count from 0): begin + k, wrapping where that is not proved to fit.
  std::string iteration(const ir::For& n, const std::string& k, bool narrow, int64_t past = 0);

  // emit_expr.cpp
  Text value(const ir::Expr& e);
  std::string scalar(const ir::Expr& e) { return value(e).lanes[0]; }
  std::string wide(const ir::Expr& e);  // of an i64 scalar, as long long
  // The value in a named temporary, unless it is a name or literal already; `copied`: also where it is a name, which
  // may be assigned later.
  Text bound(Text text, DType dtype, const char* hint, bool copied = false);
  bool fits_int(const ir::Expr& e) const;
  void count_uses(const ir::Expr& e);
  Text node(const ir::Const& n, Type type, const ir::Expr& self);
  Text node(const ir::Var& n, Type type, const ir::Expr& self);
  Text node(const ir::Load& n, Type type, const ir::Expr& self);
  Text node(const ir::Unary& n, Type type, const ir::Expr& self);
  Text node(const ir::Binary& n, Type type, const ir::Expr& self);
  Text node(const ir::Fma& n, Type type, const ir::Expr& self);
  Text node(const ir::Select& n, Type type, const ir::Expr& self);
  Text node(const ir::Ramp& n, Type type, const ir::Expr& self);
  Text node(const ir::Broadcast& n, Type type, const ir::Expr& self);
  Text node(const ir::Shuffle& n, Type type, const ir::Expr& self);
  Text node(const ir::Intrinsic& n, Type type, const ir::Expr& self);
  Text node(const ir::Math& n, Type type, const ir::Expr& self);

  // emit_convert.cpp
  Text node(const ir::Cast& n, Type type, const ir::Expr& self);
  Text node(const ir::Bitcast& n, Type type, const ir::Expr& self);

  // emit_memory.cpp
  void emit(const ir::Store& n, const ir::StmtNode* self);
  void emit(const ir::Accumulate& n, const ir::StmtNode* self);
  // Records a write of a lane loop that is committed after its body. False: an ordinary write.
  bool note(const ir::StmtNode* self, const std::string& guard, const std::string& place, const std::string& value,
            const std::string& factor);
  const Place& place(const ir::Buffer& b);
  ir::Expr offset(const ir::Buffer& b, const std::vector<ir::Expr>& index) const;
  // The element that a lane of this access addresses, if it is a constant.
  std::optional<int64_t> constant_offset(const ir::Buffer& b, const std::vector<ir::Expr>& index, int lane) const;
  // Scalar replacement: one variable per element of a thread's buffer. Empty unless all its accesses in `body` have
  // constant indices.
  std::vector<std::string> variables_of(const ir::Buffer& b, int64_t elements, const std::string& name,
                                        const ir::Stmt& body);
  std::vector<std::string> elements(const ir::Buffer& b, const std::vector<ir::Expr>& index,
                                    int lanes);  // "p[i]" per lane
  // "p + i" when the lanes are adjacent and one aligned vector access may move them.
  std::optional<std::string> neighbours(const ir::Buffer& b, const std::vector<ir::Expr>& index, int lanes);
  // The value that a write stores, in named temporaries unless it is one lane that its thread stores immediately.
  Text written(const ir::Buffer& b, const ir::Expr& value, const char* hint);
  std::string updated(const ir::Accumulate& n, const std::string& element, const std::string& value,
                      const std::string& factor) const;

  // Text.
  std::string fresh(const std::string& name);
  void line(const std::string& text);
  void open(const std::string& head);
  void close();
  void otherwise();
  std::string slot(int64_t var_id, const std::string& name, Type type);

  const HostScope& host_;
  ir::Ranges ranges_;
  const std::string name_;
  CudaFunction function_;
  std::vector<std::string> parameters_;
  std::string body_, head_;
  int indent_ = 1;
  int64_t shared_ = 0, most_shared_ = 0;
  Part part_ = Part::block;
  std::string element_;  // inside fragment loops: index of the lane's current pair
  // Written in a function that has a barrier: threads may read or overwrite one another's elements behind it.
  std::unordered_set<int64_t> exchanged_;
  std::vector<Deferred> deferred_;
  std::set<std::string> names_;
  std::unordered_map<int64_t, Text> vars_;
  std::unordered_map<int64_t, Place> places_;
  // Of the current statement; keeps the nodes alive.
  std::unordered_map<const ir::ExprNode*, std::pair<ir::Expr, Text>> memo_;
  std::unordered_map<const ir::ExprNode*, int> uses_;
  std::vector<std::pair<ir::Expr, Text>> divisions_;  // hoisted, in scope
};

constexpr int64_t int_max = 2147483647;

// Whether each thread, block or warp stores only its slice of the buffer: all dims but the first.
inline bool holds_a_part(const ir::Buffer& b) {
  return b->space == ir::Space::per_thread || b->space == ir::Space::per_block || b->space == ir::Space::per_warp;
}

// emit_text.cpp
const char* c_type(DType dtype);  // of a value in registers
inline const char* memory_type(DType dtype) { return dtype == DType::boolean ? "unsigned char" : c_type(dtype); }
std::string c_constant(DType dtype, uint64_t bits);
bool simple_name(const std::string& text);
bool literal(const std::string& text);               // a number
std::string parenthesised(const std::string& text);  // unless it is a primary expression

}  // namespace gradloom::codegen
