#include "gradloom/stmt.h"

#include <algorithm>

#include "ir/children.h"

namespace gradloom::ir {

int index_lanes(const Buffer& buffer, const std::vector<Expr>& index, const char* what);

namespace {

[[noreturn]] void bad(const std::string& message) { throw Error(ErrorCode::invalid_argument, "ir: " + message); }

Stmt make(auto node) {
  const TreeSize tree = tree_size<Stmt>(node, max_stmt_nodes);
  if (tree.depth > max_stmt_depth)
    bad("statements nest " + std::to_string(tree.depth) + " levels deep, at most " + std::to_string(max_stmt_depth) +
        " are allowed");
  if (tree.nodes > max_stmt_nodes) bad("a nest has more than " + std::to_string(max_stmt_nodes) + " statements");
  return Stmt(std::make_shared<const StmtNode>(StmtNode{std::move(node), tree}));
}

void require(bool ok, const char* what) {
  if (!ok) bad(what);
}

// Broadcasts scalars so that index, value and guard have the same lanes.
void match_access(const Buffer& buffer, std::vector<Expr>& index, Expr& value, Expr& guard, const char* what) {
  int lanes = index_lanes(buffer, index, what);
  require(static_cast<bool>(value), "a store needs a value");
  if (value.dtype() != buffer->dtype)
    bad(std::string(what) + ": " + to_string(value.type()) + " into buffer " + buffer->name + " of " +
        to_string(buffer->dtype));
  lanes = std::max({lanes, value.lanes(), guard ? guard.lanes() : 1});
  value = broadcast(value, lanes);
  if (guard) {
    require(guard.dtype() == DType::boolean, "a guard must be bool");
    guard = broadcast(guard, lanes);
  }
  bool vector_index = lanes == 1;
  for (const Expr& i : index) vector_index |= i.lanes() > 1;
  if (!vector_index && !index.empty()) index.back() = broadcast(index.back(), lanes);
}

}  // namespace

Stmt for_loop(Var v, Expr begin, Expr extent, ForKind kind, Stmt body) {
  require(v.type == Type{}, "a loop variable is an i64 scalar");
  require(begin && extent && begin.type() == Type{} && extent.type() == Type{}, "loop bounds are i64 scalars");
  require(static_cast<bool>(body), "a loop needs a body");
  return make(For{std::move(v), std::move(begin), std::move(extent), kind, std::move(body)});
}

Stmt block(std::vector<Stmt> stmts) {
  std::vector<Stmt> flat;
  for (Stmt& s : stmts) {
    if (!s) continue;
    if (const Block* inner = s.as<Block>())
      flat.insert(flat.end(), inner->stmts.begin(), inner->stmts.end());
    else
      flat.push_back(std::move(s));
  }
  if (flat.size() == 1) return flat[0];
  return make(Block{std::move(flat)});
}

Stmt let(Var v, Expr value, Stmt body) {
  if (!value || v.type != value.type())
    bad("a let's variable has its value's type: " + v.name + " is " + to_string(v.type) + ", its value " +
        (value ? to_string(value.type()) : "absent"));
  require(static_cast<bool>(body), "a let needs a body");
  return make(Let{std::move(v), std::move(value), std::move(body)});
}

Stmt store(const Buffer& buffer, std::vector<Expr> index, Expr value, Expr guard, bool streaming, bool ordered) {
  match_access(buffer, index, value, guard, "store");
  return make(Store{buffer, std::move(index), std::move(value), std::move(guard), streaming, ordered});
}

Stmt accumulate(const Buffer& buffer, std::vector<Expr> index, AccumulateOp op, Expr value, Expr factor, Expr guard,
                bool atomic, bool ordered) {
  match_access(buffer, index, value, guard, "accumulate");
  require(!is_storage_float(buffer->dtype), "an accumulate into f16 or bf16 is illegal: use an f32 temporary");
  require((op == AccumulateOp::fma) == static_cast<bool>(factor), "fma, and only fma, has a factor");
  require(op != AccumulateOp::mul || is_arithmetic(buffer->dtype), "a product takes numbers");
  if (factor) {
    factor = broadcast(factor, value.lanes());
    require(factor.type() == value.type() && is_arithmetic_float(buffer->dtype), "an fma accumulate takes f32 or f64");
  }
  return make(
      Accumulate{buffer, std::move(index), op, std::move(value), std::move(factor), std::move(guard), atomic, ordered});
}

Stmt reduce(Reduce n) {
  require(!n.ranges.empty(), "a reduction needs a variable");
  for (const Reduce::Range& r : n.ranges) {
    require(r.var.type == Type{}, "a reduction's variable is an i64 scalar");
    require(r.begin && r.extent && r.begin.type() == Type{} && r.extent.type() == Type{},
            "a reduction's bounds are i64 scalars");
  }
  require(index_lanes(n.buffer, n.index, "a reduction") == 1, "a reduction's index is scalar");
  require(!is_storage_float(n.buffer->dtype), "a reduction into f16 or bf16 is illegal: use an f32 temporary");
  for (const Reduce::Definition& d : n.lets)
    require(d.value && d.var.type == d.value.type(), "a let's variable has its value's type");
  require(static_cast<bool>(n.value), "a reduction needs a value");
  const Type type{n.buffer->dtype, 1};
  if (n.value.type() != type)
    bad("a reduction: " + to_string(n.value.type()) + " into buffer " + n.buffer->name + " of " + to_string(type));
  require((n.op == AccumulateOp::fma) == static_cast<bool>(n.factor), "fma, and only fma, has a factor");
  require(n.op != AccumulateOp::mul || is_arithmetic(type.dtype), "a product takes numbers");
  require(!n.factor || (n.factor.type() == type && is_arithmetic_float(type.dtype)),
          "an fma reduction takes f32 or f64");
  require(!n.guard || n.guard.type() == Type{DType::boolean, 1}, "a reduction's guard is a bool scalar");
  if (n.order.kind == SumOrder::loop || n.order.kind == SumOrder::any)
    require(n.order.block == 0, "a reduction in order of its loops has no blocks");
  else if (n.order.kind == SumOrder::chunks && (n.order.block < 1 || n.order.block > 1 << 30))
    bad("a chunk has 1 to 2^30 values, got " + std::to_string(n.order.block));
  else if (n.order.kind == SumOrder::tree &&
           (n.order.block < sum_partials || n.order.block > 4096 || n.order.block % sum_partials != 0))
    bad("a tree's block is a multiple of 16 up to 4096, got " + std::to_string(n.order.block));
  return make(std::move(n));
}

Stmt if_then(Expr condition, Stmt then_case, Stmt else_case) {
  require(condition && condition.type() == Type{DType::boolean, 1}, "an if's condition is a bool scalar");
  if (!then_case) then_case = block({});
  return make(If{std::move(condition), std::move(then_case), std::move(else_case)});
}

Stmt alloc(const Buffer& buffer, Stmt body) {
  require(buffer && buffer->role == Role::temp, "an alloc takes a temp buffer");
  require(buffer->strides.empty(), "an allocated buffer is dense");
  require(static_cast<bool>(body), "an alloc needs a body");
  return make(Alloc{buffer, std::move(body)});
}

Stmt check(Expr condition, Expr position, std::string argument, Stmt body) {
  require(condition && condition.dtype() == DType::boolean, "a check's condition is bool");
  require(position && position.dtype() == DType::i64, "a check's position is i64");
  require(position.lanes() == 1 || position.lanes() == condition.lanes(),
          "a check's position has its condition's lanes");
  position = broadcast(position, condition.lanes());
  return make(
      Check{std::move(condition), std::move(position), std::move(argument), body ? std::move(body) : block({})});
}

Stmt evaluate(Expr value) {
  require(value && value.as<Intrinsic>(), "evaluate takes an intrinsic");
  return make(Evaluate{std::move(value)});
}

Stmt barrier(BarrierScope scope) { return make(Barrier{scope}); }

const char* to_string(BarrierScope scope) {
  static constexpr const char* names[] = {"warp", "block", "grid"};
  static_assert(std::size(names) == static_cast<size_t>(BarrierScope::grid) + 1);
  return names[static_cast<size_t>(scope)];
}

const char* to_string(ForKind kind) {
  static constexpr const char* names[] = {"serial", "parallel", "vector", "unroll",      "ordered",  "grid",
                                          "thread", "warp",     "lane",   "cooperative", "fragment", "matrix_unit"};
  static_assert(std::size(names) == static_cast<size_t>(ForKind::matrix_unit) + 1);
  return names[static_cast<size_t>(kind)];
}

std::string to_string(SumOrder order) {
  const std::string block = std::to_string(order.block);
  switch (order.kind) {
    case SumOrder::loop:
      return "loop";
    case SumOrder::tree:
      return "tree " + block;
    case SumOrder::chunks:
      return "chunks " + block;
    case SumOrder::any:
      return "any";
  }
  return "";
}

const char* to_string(AccumulateOp op) {
  static constexpr const char* names[] = {"add", "min", "max", "fma", "mul"};
  static_assert(std::size(names) == static_cast<size_t>(AccumulateOp::mul) + 1);
  return names[static_cast<size_t>(op)];
}

}  // namespace gradloom::ir
