#pragma once
// Expressions of the loop-nest language. Nodes are immutable values behind shared handles; constructors check types and
// throw Error(invalid_argument). What each operator computes is said here and holds in every executor (interpreter,
// LLVM, CUDA).
#include <concepts>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <variant>
#include <vector>

#include "gradloom/dtype.h"
#include "gradloom/error.h"

#pragma GCC visibility push(default)
namespace gradloom::ir {

struct ExprNode;
struct BufferNode;

// A handle to an immutable expression; copies share it.
class Expr {
 public:
  Expr() = default;     // no expression: an absent guard or bound
  Expr(int64_t value);  // an i64 constant
  Expr(int value) : Expr(static_cast<int64_t>(value)) {}
  template <std::same_as<bool> Bool>
  Expr(Bool) = delete;  // a && b of two expressions is C++'s: whether both are there. Write a & b
  explicit Expr(std::shared_ptr<const ExprNode> node) : node_(std::move(node)) {}

  explicit operator bool() const { return node_ != nullptr; }
  const ExprNode& node() const { return *node_; }
  const ExprNode* get() const { return node_.get(); }
  Type type() const;
  DType dtype() const { return type().dtype; }
  int lanes() const { return type().lanes; }
  bool same_as(const Expr& other) const { return node_ == other.node_; }
  template <class T>
  const T* as() const;  // the node as a T, or nullptr

 private:
  std::shared_ptr<const ExprNode> node_;
};

// A named value: a loop index, a Let, or a kernel's scalar parameter. The id is the identity; the name is for printing.
struct Var {
  int64_t id = 0;
  std::string name = {};
  Type type = {};
};
Var make_var(std::string name, Type type = {});  // with a fresh id

// Known properties of a buffer's values, checked by the interpreter whenever the buffer is read (a property of user
// data needs a Check instead).
struct Facts {
  Expr min = {}, max = {};     // inclusive; absent: unknown
  bool nondecreasing = false;  // along the last dim
  bool injective = false;      // no two elements are equal
  // temp only: distinct iterations of each loop within its allocation touch distinct elements, where one of them writes,
  // by the author's word; a loop of which that is not so is of kind `ordered`.
  bool exclusive = false;
};

enum class Role : uint8_t { in, out, inout, temp };
// Memory spaces:
//   global: a kernel parameter or scratch.
//   registers: small; every index is constant once lowered, so the buffer can be kept in registers.
//   shared: constant dims, allocated in a grid loop, one copy per block, in memory shared by the block's threads.
//   per_thread: as shared, but the first dim is the thread index in the block and each thread accesses only its own
//     part: per-thread state that is live across thread loops.
//   per_block: allocated in a cooperative loop; the first dim is the block index and each block accesses only its own
//     part: per-block state that stays on chip across grid loops.
//   per_warp: [warps, rows, columns], one tile per warp of the block, its elements distributed over the registers
//     of the warp's lanes in the layout of matrix units; accessed by fragment loops.
enum class Space : uint8_t { global, registers, shared, per_thread, per_block, per_warp };

// An N-d array. Dims and strides count elements and are i64 expressions over scalar parameters (constants when
// specialised).
class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(std::shared_ptr<const BufferNode> node) : node_(std::move(node)) {}
  explicit operator bool() const { return node_ != nullptr; }
  const BufferNode* operator->() const { return node_.get(); }
  const BufferNode& operator*() const { return *node_; }
  const BufferNode* get() const { return node_.get(); }
  bool same_as(const Buffer& other) const;  // by id

 private:
  std::shared_ptr<const BufferNode> node_;
};

// Launches refuse a parameter whose dims, those of 0 left out, multiply to more than this. Proofs about symbolic dims
// rely on it.
inline constexpr int64_t max_elements = int64_t{1} << 48;
// Launches also refuse a buffer whose first and last byte are this far apart or farther: more than any address space
// has, so that offsets within a buffer, in elements or bytes, are known to fit.
inline constexpr int64_t max_buffer_bytes = int64_t{1} << 48;

struct BufferNode {
  int64_t id = 0;
  std::string name = {};
  DType dtype = DType::f32;
  std::vector<Expr> dims = {};
  std::vector<Expr> strides = {};  // empty: dense, row-major
  Role role = Role::temp;
  Space space = Space::global;
  int64_t alignment = 1;  // bytes, of element [0, ..., 0]; 1: any address
  Facts facts = {};
};
Buffer make_buffer(BufferNode node);  // a fresh id when node.id is 0

// Integers wrap in two's complement. neg/abs of a float clear or flip the sign bit. sqrt, floor, ceil, trunc: IEEE.
enum class UnaryOp : uint8_t { neg, bit_not, abs, sqrt, floor, ceil, trunc };

// add/sub/mul: integers wrap, floats round once to nearest even, denormals kept, never contracted or reassociated.
// div: floats only. floor_div/floor_mod: integers only, rounding towards minus infinity, the divisor proved nonzero
//   (INT_MIN / -1 wraps). min/max: IEEE 754-2019 minimum and maximum (NaN wins, -0 < +0).
// bit_*: integers and booleans. shl/shr: 0 <= count < bits proved; shr is arithmetic on signed types.
// Comparisons give booleans; any comparison with a NaN is false but ne.
enum class BinaryOp : uint8_t {
  add,
  sub,
  mul,
  div,
  floor_div,
  floor_mod,
  min,
  max,
  bit_and,
  bit_or,
  bit_xor,
  shl,
  shr,
  eq,
  ne,
  lt,
  le,
  gt,
  ge
};
bool is_comparison(BinaryOp op);
bool is_order(BinaryOp op);  // lt, le, gt, ge

struct Const {
  uint64_t bits = 0;  // the value's bit pattern, zero-extended; scalar types only
};
// Reads buffer[index]. An index is i64, scalar or with the load's lanes. With a guard, lanes whose guard is false
// access no memory and yield `otherwise`; this is the only lazy evaluation.
struct Load {
  Buffer buffer;
  std::vector<Expr> index;
  Expr guard, otherwise;
};
struct Unary {
  UnaryOp op;
  Expr a;
};
struct Binary {
  BinaryOp op;
  Expr a, b;
};
struct Fma {  // a * b + c, rounded once
  Expr a, b, c;
};
struct Select {  // eager: both sides are evaluated
  Expr condition, a, b;
};
// Value conversion. Int to int wraps; to bool: nonzero; float to int truncates, saturates, NaN gives 0; to float rounds
// to nearest even, to f16 and bf16 once from the source type.
struct Cast {
  Expr value;
};
struct Bitcast {  // same bits, same size per lane
  Expr value;
};
struct Ramp {  // base, base + stride, ..., lanes of them
  Expr base, stride;
  int lanes;
};
struct Broadcast {
  Expr value;
  int lanes;
};
// Lane i is lane lanes[i] of the concatenation of a and b (b may be absent). One lane extracts a scalar.
struct Shuffle {
  Expr a, b;
  std::vector<int> lanes;
};

enum class IntrinsicOp : uint8_t {
  prefetch,  // (buffer, index...; level 1 to 3) -> bool false; effect: none on values, and any index is allowed
  all,       // (bool xN) -> bool: every lane is true
  any,       // (bool xN) -> bool: some lane is true
};
struct Intrinsic {
  IntrinsicOp op;
  Buffer buffer;           // prefetch
  std::vector<Expr> args;  // prefetch: the index
  int level = 0;           // prefetch: cache level
};

// An elementary function of f32 or f64, with the error bounds and limits that math.h states. The pass expand_math
// makes it the nodes above; the interpreter runs the same expansion, so every executor computes the same bits.
enum class MathOp : uint8_t { exp, expm1, log, log1p, tanh, logistic, softplus, erf, sin, cos, pow };
inline constexpr MathOp all_math_ops[] = {MathOp::exp,  MathOp::expm1,    MathOp::log,      MathOp::log1p,
                                          MathOp::tanh, MathOp::logistic, MathOp::softplus, MathOp::erf,
                                          MathOp::sin,  MathOp::cos,      MathOp::pow};
struct Math {
  MathOp op;
  Expr a;
  double exponent = 0;  // pow only; a value of a's dtype
};

// Size and depth as a tree: a shared subexpression counts once per use, as visitors visit it once per use. Constructors
// refuse trees that are too deep or too large for a visitor's stack or time; bind a subexpression that is used often
// with a let.
struct TreeSize {
  int depth = 1, nodes = 1;
};
inline constexpr int max_expr_depth = 1000, max_expr_nodes = 1 << 16;

struct ExprNode {
  Type type;
  std::variant<Const, Var, Load, Unary, Binary, Fma, Select, Cast, Bitcast, Ramp, Broadcast, Shuffle, Intrinsic, Math>
      value;
  TreeSize tree;
};

inline Type Expr::type() const { return node_->type; }
template <class T>
const T* Expr::as() const {
  return node_ ? std::get_if<T>(&node_->value) : nullptr;
}

// Constructors. A scalar operand is broadcast when the other one is a vector:
Expr constant_bits(DType dtype, uint64_t bits);
Expr constant(DType dtype, double value);       // rounded to dtype
Expr constant_int(DType dtype, int64_t value);  // wrapped to dtype; also for floats when exact
Expr zero(Type type);
Expr true_value();
Expr var(const Var& v);
Expr load(const Buffer& buffer, std::vector<Expr> index, Expr guard = {}, Expr otherwise = {});
Expr unary(UnaryOp op, Expr a);
Expr binary(BinaryOp op, Expr a, Expr b);
Expr fma(Expr a, Expr b, Expr c);
Expr select(Expr condition, Expr a, Expr b);
Expr cast(DType dtype, Expr value);  // the value itself when it has the dtype
Expr bitcast(DType dtype, Expr value);
Expr ramp(Expr base, Expr stride, int lanes);
Expr broadcast(Expr value, int lanes);  // the value itself when it has the lanes
Expr shuffle(Expr a, Expr b, std::vector<int> lanes);
Expr extract(Expr vector, int lane);
Expr prefetch(const Buffer& buffer, std::vector<Expr> index, int level);
Expr all_lanes(Expr condition);
Expr any_lane(Expr condition);
Expr math(MathOp op, Expr a);               // any but pow
Expr power(Expr a, double exponent);        // pow; the exponent rounded to a's dtype
Expr with_argument(const Math& n, Expr a);  // the same function of a

// Operators, as in C++, of two operands of one dtype; any other pair is Error(invalid_argument), naming
// both:
inline Expr operator+(Expr a, Expr b) { return binary(BinaryOp::add, std::move(a), std::move(b)); }
inline Expr operator-(Expr a, Expr b) { return binary(BinaryOp::sub, std::move(a), std::move(b)); }
inline Expr operator*(Expr a, Expr b) { return binary(BinaryOp::mul, std::move(a), std::move(b)); }
inline Expr operator/(Expr a, Expr b) { return binary(BinaryOp::div, std::move(a), std::move(b)); }  // floats only
inline Expr operator-(Expr a) { return unary(UnaryOp::neg, std::move(a)); }
inline Expr operator<(Expr a, Expr b) { return binary(BinaryOp::lt, std::move(a), std::move(b)); }
inline Expr operator<=(Expr a, Expr b) { return binary(BinaryOp::le, std::move(a), std::move(b)); }
inline Expr operator>(Expr a, Expr b) { return binary(BinaryOp::gt, std::move(a), std::move(b)); }
inline Expr operator>=(Expr a, Expr b) { return binary(BinaryOp::ge, std::move(a), std::move(b)); }
inline Expr operator==(Expr a, Expr b) { return binary(BinaryOp::eq, std::move(a), std::move(b)); }
inline Expr operator!=(Expr a, Expr b) { return binary(BinaryOp::ne, std::move(a), std::move(b)); }
inline Expr operator&(Expr a, Expr b) { return binary(BinaryOp::bit_and, std::move(a), std::move(b)); }
inline Expr operator|(Expr a, Expr b) { return binary(BinaryOp::bit_or, std::move(a), std::move(b)); }
inline Expr floor_div(Expr a, Expr b) { return binary(BinaryOp::floor_div, std::move(a), std::move(b)); }
inline Expr floor_mod(Expr a, Expr b) { return binary(BinaryOp::floor_mod, std::move(a), std::move(b)); }
inline Expr min(Expr a, Expr b) { return binary(BinaryOp::min, std::move(a), std::move(b)); }
inline Expr max(Expr a, Expr b) { return binary(BinaryOp::max, std::move(a), std::move(b)); }

// !e: the negation of a bool. In a condition of C++ it says that there is no expression, as `if (e)` says that there
// is one.
class Not {
 public:
  explicit Not(const Expr& e) : e_(e) {}
  operator Expr() &&;  // throws Error(invalid_argument) unless e is a bool
  explicit operator bool() && { return !static_cast<bool>(e_); }

 private:
  const Expr& e_;
};
inline Not operator!(const Expr& e) { return Not(e); }

// A number beside an expression has its dtype: load(x, {i}) * 0.5, i + 1, load(x, {i}) > 0. A float's is rounded to
// nearest; Error(invalid_argument) where the dtype does not have it (0.5 of i64, 300 of u8, 1e39 of f32).
template <class T>
concept Number = std::is_arithmetic_v<T>;
Expr number_like(DType dtype, bool value);
Expr number_like(DType dtype, int64_t value);
Expr number_like(DType dtype, uint64_t value);
Expr number_like(DType dtype, double value);
DType dtype_of(const Expr& e);  // throws Error(invalid_argument) when there is no expression
template <Number T>
Expr number_like(DType dtype, T value) {
  if constexpr (std::is_floating_point_v<T>)
    return number_like(dtype, static_cast<double>(value));
  else if constexpr (std::is_signed_v<T>)
    return number_like(dtype, static_cast<int64_t>(value));
  else
    return number_like(dtype, static_cast<uint64_t>(value));
}
#define GRADLOOM_WITH_A_NUMBER(function)             \
  template <Number T>                                \
  Expr function(const Expr& a, T b) {                \
    return function(a, number_like(dtype_of(a), b)); \
  }                                                  \
  template <Number T>                                \
  Expr function(T a, const Expr& b) {                \
    return function(number_like(dtype_of(b), a), b); \
  }
GRADLOOM_WITH_A_NUMBER(operator+)
GRADLOOM_WITH_A_NUMBER(operator-)
GRADLOOM_WITH_A_NUMBER(operator*)
GRADLOOM_WITH_A_NUMBER(operator/)
GRADLOOM_WITH_A_NUMBER(operator<)
GRADLOOM_WITH_A_NUMBER(operator<=)
GRADLOOM_WITH_A_NUMBER(operator>)
GRADLOOM_WITH_A_NUMBER(operator>=)
GRADLOOM_WITH_A_NUMBER(operator==)
GRADLOOM_WITH_A_NUMBER(operator!=)
GRADLOOM_WITH_A_NUMBER(floor_div)
GRADLOOM_WITH_A_NUMBER(floor_mod)
GRADLOOM_WITH_A_NUMBER(min)
GRADLOOM_WITH_A_NUMBER(max)
#undef GRADLOOM_WITH_A_NUMBER
template <Number T>
Expr select(Expr condition, const Expr& a, T b) {
  return select(std::move(condition), a, number_like(dtype_of(a), b));
}
template <Number T>
Expr select(Expr condition, T a, const Expr& b) {
  return select(std::move(condition), number_like(dtype_of(b), a), b);
}

std::optional<int64_t> as_int(const Expr& e);  // the value of an integer constant
bool is_const(const Expr& e, int64_t value);   // an integer constant of this value
bool equal(const Expr& a, const Expr& b);      // structural; variables and buffers by id

const char* to_string(UnaryOp op);   // "neg"
const char* to_string(BinaryOp op);  // "add"
const char* to_string(IntrinsicOp op);
const char* to_string(MathOp op);  // "exp"
const char* to_string(Role role);
const char* to_string(Space space);

}  // namespace gradloom::ir

#pragma GCC visibility pop
