#include "gradloom/expr.h"

#include <algorithm>
#include <atomic>
#include <bit>

#include "ir/children.h"
#include "ir/operators.h"
#include "ir/scalar_math.h"
#include "support/float_mode.h"

namespace gradloom::ir {
namespace {

[[noreturn]] void bad(const std::string& message) { throw Error(ErrorCode::invalid_argument, "ir: " + message); }

Expr make(Type type, auto node) {
  const TreeSize tree = tree_size<Expr>(node, max_expr_nodes);
  if (tree.depth > max_expr_depth)
    bad("an expression nests " + std::to_string(tree.depth) + " levels deep, at most " +
        std::to_string(max_expr_depth) + " are allowed");
  if (tree.nodes > max_expr_nodes)
    bad("an expression has more than " + std::to_string(max_expr_nodes) +
        " nodes, parts used twice counted twice: name such parts with a let");
  return Expr(std::make_shared<const ExprNode>(ExprNode{type, std::move(node), tree}));
}

void require(bool ok, const char* what, Type type) {
  if (!ok) bad(std::string(what) + ", got " + to_string(type));
}

int64_t next_id() {
  static std::atomic<int64_t> counter{0};
  return ++counter;
}

// Gives both operands the same number of lanes.
void match_lanes(Expr& a, Expr& b) {
  if (a.lanes() == b.lanes()) return;
  if (a.lanes() == 1)
    a = broadcast(a, b.lanes());
  else
    b = broadcast(b, a.lanes());  // throws when b is not a scalar
}

void require_same(const Expr& a, const Expr& b, const char* what) {
  if (a.type() != b.type())
    bad(std::string(what) + ": operands of " + to_string(a.type()) + " and " + to_string(b.type()));
}

void require_present(const Expr& e, const char* what) {
  if (!e) bad(std::string(what) + ": an operand is absent");
}

}  // namespace

// Shared by loads, stores and accumulates: checks an index against its buffer and gives the access's lanes.
int index_lanes(const Buffer& buffer, const std::vector<Expr>& index, const char* what) {
  if (!buffer) bad(std::string(what) + ": no buffer");
  if (index.size() != buffer->dims.size())
    bad(std::string(what) + ": buffer " + buffer->name + " has rank " + std::to_string(buffer->dims.size()) +
        ", the index " + std::to_string(index.size()));
  int lanes = 1;
  for (const Expr& i : index) {
    require_present(i, what);
    require(i.dtype() == DType::i64, "an index must be i64", i.type());
    if (i.lanes() == 1) continue;
    if (lanes != 1 && lanes != i.lanes()) bad(std::string(what) + ": index lanes differ");
    lanes = i.lanes();
  }
  return lanes;
}

Expr::Expr(int64_t value) : Expr(constant_int(DType::i64, value)) {}

Var make_var(std::string name, Type type) { return Var{next_id(), std::move(name), type}; }

bool Buffer::same_as(const Buffer& other) const {
  return node_ == other.node_ || (node_ && other.node_ && node_->id == other.node_->id);
}

Buffer make_buffer(BufferNode node) {
  if (node.id == 0) node.id = next_id();
  for (const std::vector<Expr>* list : {&node.dims, &node.strides})
    for (const Expr& e : *list) {
      require_present(e, "buffer dim");
      require(e.type() == Type{}, "a buffer's dims and strides must be i64 scalars", e.type());
    }
  if (!node.strides.empty() && node.strides.size() != node.dims.size())
    bad("buffer " + node.name + ": one stride a dim");
  if (node.alignment < 1 || !std::has_single_bit(static_cast<uint64_t>(node.alignment)))
    bad("buffer " + node.name + ": alignment must be a power of two");
  return Buffer(std::make_shared<const BufferNode>(std::move(node)));
}

bool is_order(BinaryOp op) { return op >= BinaryOp::lt; }
bool is_comparison(BinaryOp op) { return info_of(op).precedence == precedence::comparison; }

Expr constant_bits(DType dtype, uint64_t bits) { return make({dtype, 1}, Const{bits}); }
Expr constant(DType dtype, double value) {
  const FloatMode mode;
  return constant_bits(dtype, bits_from_double(dtype, value));
}
Expr constant_int(DType dtype, int64_t value) {
  const FloatMode mode;
  return constant_bits(dtype, bits_from_int(dtype, value));
}
Expr zero(Type type) { return broadcast(constant_bits(type.dtype, 0), type.lanes); }
Expr true_value() { return constant_bits(DType::boolean, 1); }
Expr var(const Var& v) { return make(v.type, v); }

Expr load(const Buffer& buffer, std::vector<Expr> index, Expr guard, Expr otherwise) {
  int lanes = index_lanes(buffer, index, "load");
  if (guard) {
    require(guard.dtype() == DType::boolean, "a load's guard must be bool", guard.type());
    lanes = std::max({lanes, guard.lanes(), otherwise ? otherwise.lanes() : 1});
    guard = broadcast(guard, lanes);
    otherwise = broadcast(otherwise ? otherwise : constant_bits(buffer->dtype, 0), lanes);
    require(otherwise.dtype() == buffer->dtype, "a load's otherwise must have the buffer's dtype", otherwise.type());
  } else if (otherwise) {
    bad("load: an otherwise without a guard");
  }
  if (lanes > 1 && std::all_of(index.begin(), index.end(), [](const Expr& i) { return i.lanes() == 1; }) &&
      !index.empty())
    index.back() = broadcast(index.back(), lanes);
  return make({buffer->dtype, lanes}, Load{buffer, std::move(index), std::move(guard), std::move(otherwise)});
}

Expr unary(UnaryOp op, Expr a) {
  require_present(a, to_string(op));
  const DType t = a.dtype();
  switch (op) {
    case UnaryOp::neg:
    case UnaryOp::abs:
      require(is_arithmetic(t), "neg and abs take numbers", a.type());
      break;
    case UnaryOp::bit_not:
      require(!is_float(t), "bit_not takes integers and booleans", a.type());
      break;
    default:
      require(is_arithmetic_float(t), "a float operation takes f32 or f64", a.type());
  }
  const Type type = a.type();
  return make(type, Unary{op, std::move(a)});
}

Expr binary(BinaryOp op, Expr a, Expr b) {
  require_present(a, to_string(op));
  require_present(b, to_string(op));
  match_lanes(a, b);
  require_same(a, b, to_string(op));
  const DType t = a.dtype();
  switch (op) {
    case BinaryOp::div:
      require(is_arithmetic_float(t), "div takes f32 or f64 (integers: floor_div)", a.type());
      break;
    case BinaryOp::floor_div:
    case BinaryOp::floor_mod:
    case BinaryOp::shl:
    case BinaryOp::shr:
      require(is_int(t), "an integer operation takes integers", a.type());
      break;
    case BinaryOp::bit_and:
    case BinaryOp::bit_or:
    case BinaryOp::bit_xor:
      require(!is_float(t), "bit operations take integers and booleans", a.type());
      break;
    case BinaryOp::eq:
    case BinaryOp::ne:
      require(!is_storage_float(t), "f16 and bf16 are storage types: cast to f32 first", a.type());
      break;
    default:
      require(is_arithmetic(t), "arithmetic takes integers, f32 or f64", a.type());
  }
  const Type type{is_comparison(op) ? DType::boolean : t, a.lanes()};
  return make(type, Binary{op, std::move(a), std::move(b)});
}

Expr fma(Expr a, Expr b, Expr c) {
  for (const Expr* e : {&a, &b, &c}) require_present(*e, "fma");
  match_lanes(a, b);
  match_lanes(a, c);
  match_lanes(a, b);
  require_same(a, b, "fma");
  require_same(a, c, "fma");
  require(is_arithmetic_float(a.dtype()), "fma takes f32 or f64", a.type());
  const Type type = a.type();
  return make(type, Fma{std::move(a), std::move(b), std::move(c)});
}

Expr select(Expr condition, Expr a, Expr b) {
  for (const Expr* e : {&condition, &a, &b}) require_present(*e, "select");
  require(condition.dtype() == DType::boolean, "a select's condition must be bool", condition.type());
  match_lanes(a, b);
  match_lanes(condition, a);
  match_lanes(a, b);
  require_same(a, b, "select");
  const Type type = a.type();
  return make(type, Select{std::move(condition), std::move(a), std::move(b)});
}

Expr cast(DType dtype, Expr value) {
  require_present(value, "cast");
  if (value.dtype() == dtype) return value;
  const Type type{dtype, value.lanes()};
  return make(type, Cast{std::move(value)});
}

Expr bitcast(DType dtype, Expr value) {
  require_present(value, "bitcast");
  if (value.dtype() == dtype) return value;
  require(size_of(dtype) == size_of(value.dtype()) && dtype != DType::boolean && value.dtype() != DType::boolean,
          "a bitcast keeps the size and takes no bool", value.type());
  const Type type{dtype, value.lanes()};
  return make(type, Bitcast{std::move(value)});
}

Expr ramp(Expr base, Expr stride, int lanes) {
  require_present(base, "ramp");
  require_present(stride, "ramp");
  require_same(base, stride, "ramp");
  require(base.lanes() == 1 && is_int(base.dtype()), "a ramp takes scalar integers", base.type());
  if (lanes < 2) bad("a ramp has at least 2 lanes");
  const Type type{base.dtype(), lanes};
  return make(type, Ramp{std::move(base), std::move(stride), lanes});
}

Expr broadcast(Expr value, int lanes) {
  require_present(value, "broadcast");
  if (value.lanes() == lanes) return value;
  require(value.lanes() == 1 && lanes > 1,
          ("a broadcast to " + std::to_string(lanes) + " lanes takes a scalar").c_str(), value.type());
  const Type type{value.dtype(), lanes};
  return make(type, Broadcast{std::move(value), lanes});
}

Expr shuffle(Expr a, Expr b, std::vector<int> lanes) {
  require_present(a, "shuffle");
  if (b) require_same(a, b, "shuffle");
  const int available = a.lanes() * (b ? 2 : 1);
  if (lanes.empty()) bad("shuffle: no lanes");
  for (int lane : lanes)
    if (lane < 0 || lane >= available)
      bad("shuffle: lane " + std::to_string(lane) + " of " + std::to_string(available));
  const Type type{a.dtype(), static_cast<int>(lanes.size())};
  return make(type, Shuffle{std::move(a), std::move(b), std::move(lanes)});
}

Expr extract(Expr vector, int lane) { return shuffle(std::move(vector), {}, {lane}); }

Expr prefetch(const Buffer& buffer, std::vector<Expr> index, int level) {
  if (index_lanes(buffer, index, "prefetch") != 1) bad("prefetch takes a scalar index");
  if (level < 1 || level > 3) bad("prefetch: level 1 to 3, got " + std::to_string(level));
  return make({DType::boolean, 1}, Intrinsic{IntrinsicOp::prefetch, buffer, std::move(index), level});
}

namespace {
Expr reduce_lanes(IntrinsicOp op, Expr condition) {
  require_present(condition, to_string(op));
  require(condition.dtype() == DType::boolean, "all and any take booleans", condition.type());
  if (condition.lanes() == 1) return condition;
  return make({DType::boolean, 1}, Intrinsic{op, {}, {std::move(condition)}, 0});
}
}  // namespace
Expr all_lanes(Expr condition) { return reduce_lanes(IntrinsicOp::all, std::move(condition)); }
Expr any_lane(Expr condition) { return reduce_lanes(IntrinsicOp::any, std::move(condition)); }

Expr math(MathOp op, Expr a) {
  require_present(a, to_string(op));
  require(is_arithmetic_float(a.dtype()), "elementary functions take f32 or f64", a.type());
  require(op != MathOp::pow, "pow has an exponent: power", a.type());
  const Type type = a.type();
  return make(type, Math{op, std::move(a)});
}

Expr power(Expr a, double exponent) {
  require_present(a, "pow");
  require(is_arithmetic_float(a.dtype()), "elementary functions take f32 or f64", a.type());
  const Type type = a.type();
  const double rounded = double_from_bits(type.dtype, bits_from_double(type.dtype, exponent));
  return make(type, Math{MathOp::pow, std::move(a), rounded});
}

Expr with_argument(const Math& n, Expr a) {
  return n.op == MathOp::pow ? power(std::move(a), n.exponent) : math(n.op, std::move(a));
}

std::optional<int64_t> as_int(const Expr& e) {
  const Const* c = e.as<Const>();
  if (!c || !is_int(e.dtype())) return std::nullopt;
  return int_from_bits(e.dtype(), c->bits);
}

bool is_const(const Expr& e, int64_t value) { return as_int(e) == value; }

namespace {
bool equal_lists(const std::vector<Expr>& a, const std::vector<Expr>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), equal);
}

struct Equal {
  const ExprNode& other;
  template <class T>
  const T& peer() const {
    return std::get<T>(other.value);
  }
  bool operator()(const Const& n) const { return n.bits == peer<Const>().bits; }
  bool operator()(const Var& n) const { return n.id == peer<Var>().id; }
  bool operator()(const Load& n) const {
    const Load& m = peer<Load>();
    return n.buffer.same_as(m.buffer) && equal_lists(n.index, m.index) && equal(n.guard, m.guard) &&
           equal(n.otherwise, m.otherwise);
  }
  bool operator()(const Unary& n) const { return n.op == peer<Unary>().op && equal(n.a, peer<Unary>().a); }
  bool operator()(const Binary& n) const {
    const Binary& m = peer<Binary>();
    return n.op == m.op && equal(n.a, m.a) && equal(n.b, m.b);
  }
  bool operator()(const Fma& n) const {
    const Fma& m = peer<Fma>();
    return equal(n.a, m.a) && equal(n.b, m.b) && equal(n.c, m.c);
  }
  bool operator()(const Select& n) const {
    const Select& m = peer<Select>();
    return equal(n.condition, m.condition) && equal(n.a, m.a) && equal(n.b, m.b);
  }
  bool operator()(const Cast& n) const { return equal(n.value, peer<Cast>().value); }
  bool operator()(const Bitcast& n) const { return equal(n.value, peer<Bitcast>().value); }
  bool operator()(const Ramp& n) const {
    return equal(n.base, peer<Ramp>().base) && equal(n.stride, peer<Ramp>().stride);
  }
  bool operator()(const Broadcast& n) const { return equal(n.value, peer<Broadcast>().value); }
  bool operator()(const Shuffle& n) const {
    const Shuffle& m = peer<Shuffle>();
    return n.lanes == m.lanes && equal(n.a, m.a) && equal(n.b, m.b);
  }
  bool operator()(const Intrinsic& n) const {
    const Intrinsic& m = peer<Intrinsic>();
    return n.op == m.op && n.level == m.level && n.buffer.same_as(m.buffer) && equal_lists(n.args, m.args);
  }
  bool operator()(const Math& n) const {
    const Math& m = peer<Math>();
    return n.op == m.op && std::bit_cast<uint64_t>(n.exponent) == std::bit_cast<uint64_t>(m.exponent) &&
           equal(n.a, m.a);
  }
};
}  // namespace

bool equal(const Expr& a, const Expr& b) {
  if (a.same_as(b)) return true;
  if (!a || !b || a.type() != b.type() || a.node().value.index() != b.node().value.index()) return false;
  return std::visit(Equal{b.node()}, a.node().value);
}

const char* to_string(UnaryOp op) {
  static constexpr const char* names[] = {"neg", "not", "abs", "sqrt", "floor", "ceil", "trunc"};
  static_assert(std::size(names) == static_cast<size_t>(UnaryOp::trunc) + 1);
  return names[static_cast<size_t>(op)];
}

const char* to_string(BinaryOp op) { return info_of(op).name; }

const char* to_string(IntrinsicOp op) {
  static constexpr const char* names[] = {"prefetch", "all", "any"};
  static_assert(std::size(names) == static_cast<size_t>(IntrinsicOp::any) + 1);
  return names[static_cast<size_t>(op)];
}

const char* to_string(MathOp op) {
  static constexpr const char* names[] = {"exp",      "expm1", "log", "log1p", "tanh", "logistic",
                                          "softplus", "erf",   "sin", "cos",   "pow"};
  static_assert(std::size(names) == std::size(all_math_ops));
  return names[static_cast<size_t>(op)];
}

const char* to_string(Role role) {
  static constexpr const char* names[] = {"in", "out", "inout", "temp"};
  static_assert(std::size(names) == static_cast<size_t>(Role::temp) + 1);
  return names[static_cast<size_t>(role)];
}

const char* to_string(Space space) {
  static constexpr const char* names[] = {"global", "registers", "shared", "per_thread", "per_block", "per_warp"};
  static_assert(std::size(names) == static_cast<size_t>(Space::per_warp) + 1);
  return names[static_cast<size_t>(space)];
}

}  // namespace gradloom::ir
