// Evaluation of expressions in the interpreter.
#include <algorithm>
#include <array>

#include "ir/expand_math.h"
#include "ir/interpret/code.h"
#include "ir/scalar_math.h"

namespace gradloom::ir::interp {
namespace {

struct ConstCode final : ExprCode {
  ConstCode(int lane_count, uint64_t value) : ExprCode(lane_count), bits(value) {}
  uint64_t scalar(Frame&) const override { return bits; }
  void vector(Frame&, uint64_t* out) const override { std::fill_n(out, lanes, bits); }
  uint64_t bits;
};

struct VarCode final : ExprCode {
  VarCode(int lane_count, size_t at) : ExprCode(lane_count), slot(at) {}
  uint64_t scalar(Frame& frame) const override { return frame.vars[slot]; }
  void vector(Frame& frame, uint64_t* out) const override { std::copy_n(&frame.vars[slot], lanes, out); }
  size_t slot;
};

struct LoadCode final : ExprCode {
  LoadCode(Access where, ExprPtr lane_guard, ExprPtr other)
      : ExprCode(where.lanes), access(std::move(where)), guard(std::move(lane_guard)), otherwise(std::move(other)) {}
  uint64_t scalar(Frame& frame) const override {
    int64_t index[max_rank];
    access.scalar(frame, index);
    if (guard) {
      const uint64_t off = otherwise->scalar(frame);
      if (!guard->scalar(frame)) return off;
    }
    return frame.arrays[access.array]->load(index);
  }
  void vector(Frame& frame, uint64_t* out) const override {
    Lanes places(access.rank() * lanes), on(lanes);
    int64_t* index = reinterpret_cast<int64_t*>(places.data());
    access.vector(frame, index);
    if (guard) {
      guard->vector(frame, on.data());
      otherwise->vector(frame, out);
    }
    Array& array = *frame.arrays[access.array];
    for (int lane = 0; lane < lanes; ++lane)
      if (!guard || on[lane]) out[lane] = array.load(index + lane * access.rank());
  }
  Access access;
  ExprPtr guard, otherwise;
};

// A function of N operands, lane by lane.
template <size_t N, class F>
struct MapCode final : ExprCode {
  MapCode(int lane_count, std::array<ExprPtr, N> args, F apply)
      : ExprCode(lane_count), operands(std::move(args)), f(std::move(apply)) {}
  uint64_t scalar(Frame& frame) const override {
    uint64_t v[N];
    for (size_t i = 0; i < N; ++i) v[i] = operands[i]->scalar(frame);
    return f(v);
  }
  void vector(Frame& frame, uint64_t* out) const override {
    Lanes values(N * lanes);
    for (size_t i = 0; i < N; ++i) operands[i]->vector(frame, values.data() + i * lanes);
    for (int lane = 0; lane < lanes; ++lane) {
      uint64_t v[N];
      for (size_t i = 0; i < N; ++i) v[i] = values[i * lanes + lane];
      out[lane] = f(v);
    }
  }
  std::array<ExprPtr, N> operands;
  F f;
};

template <class F, class... Args>
ExprPtr map(int lanes, F f, Args... args) {
  std::array<ExprPtr, sizeof...(Args)> operands{std::move(args)...};
  for (const ExprPtr& operand : operands)
    if (operand->lanes != lanes)
      fault("an operand of " + std::to_string(operand->lanes) + " lanes in an expression of " + std::to_string(lanes));
  return std::make_unique<MapCode<sizeof...(Args), F>>(lanes, std::move(operands), std::move(f));
}

struct RampCode final : ExprCode {
  RampCode(Type type, ExprPtr from, ExprPtr by)
      : ExprCode(type.lanes), dtype(type.dtype), base(std::move(from)), stride(std::move(by)) {}
  uint64_t scalar(Frame& frame) const override { return base->scalar(frame); }
  void vector(Frame& frame, uint64_t* out) const override {
    const uint64_t first = base->scalar(frame), step = stride->scalar(frame);
    for (int lane = 0; lane < lanes; ++lane)
      out[lane] = bits_from_int(dtype, static_cast<int64_t>(first + step * static_cast<uint64_t>(lane)));
  }
  DType dtype;
  ExprPtr base, stride;
};

struct BroadcastCode final : ExprCode {
  BroadcastCode(int lane_count, ExprPtr of) : ExprCode(lane_count), value(std::move(of)) {}
  uint64_t scalar(Frame& frame) const override { return value->scalar(frame); }
  void vector(Frame& frame, uint64_t* out) const override { std::fill_n(out, lanes, value->scalar(frame)); }
  ExprPtr value;
};

struct ShuffleCode final : ExprCode {
  ShuffleCode(ExprPtr first, ExprPtr second, std::vector<int> chosen)
      : ExprCode(static_cast<int>(chosen.size())),
        a(std::move(first)),
        b(std::move(second)),
        lane_of(std::move(chosen)) {}
  uint64_t scalar(Frame& frame) const override {
    uint64_t out;
    vector(frame, &out);
    return out;
  }
  void vector(Frame& frame, uint64_t* out) const override {
    Lanes values(a->lanes + (b ? b->lanes : 0));
    a->vector(frame, values.data());
    if (b) b->vector(frame, values.data() + a->lanes);
    for (size_t i = 0; i < lane_of.size(); ++i) out[i] = values[lane_of[i]];
  }
  ExprPtr a, b;
  std::vector<int> lane_of;
};

// Evaluates its operands and folds the lanes of the first into one boolean; a prefetch has no value.
struct IntrinsicCode final : ExprCode {
  IntrinsicCode(IntrinsicOp what, std::vector<ExprPtr> operands) : ExprCode(1), op(what), args(std::move(operands)) {}
  uint64_t scalar(Frame& frame) const override {
    if (op == IntrinsicOp::prefetch) {
      for (const ExprPtr& arg : args) arg->scalar(frame);
      return 0;
    }
    const int n = args[0]->lanes;
    Lanes values(n);
    args[0]->vector(frame, values.data());
    int count = 0;
    for (int lane = 0; lane < n; ++lane) count += values[lane] != 0;
    return op == IntrinsicOp::all ? count == n : count > 0;
  }
  void vector(Frame& frame, uint64_t* out) const override { *out = scalar(frame); }
  IntrinsicOp op;
  std::vector<ExprPtr> args;
};

// An elementary function: its expansion on the value of `argument`.
struct MathCode final : ExprCode {
  struct Definition {
    ExprPtr value;
    size_t slot;
  };
  explicit MathCode(int lane_count) : ExprCode(lane_count) {}
  uint64_t scalar(Frame& frame) const override {
    for (const Definition& d : lets) frame.vars[d.slot] = d.value->scalar(frame);
    return value->scalar(frame);
  }
  void vector(Frame& frame, uint64_t* out) const override {
    for (const Definition& d : lets) {
      Lanes values(d.value->lanes);
      d.value->vector(frame, values.data());
      std::copy_n(values.data(), d.value->lanes, &frame.vars[d.slot]);
    }
    value->vector(frame, out);
  }
  std::vector<Definition> lets;
  ExprPtr value;
};

// Index arithmetic dominates the run time: its operators are specialised at compile time.
ExprPtr index_arithmetic(BinaryOp op, int lanes, ExprPtr& a, ExprPtr& b) {
  const auto node = [&](auto f) { return map(lanes, f, std::move(a), std::move(b)); };
  using Signed = int64_t;
  switch (op) {
    case BinaryOp::add:
      return node([](const uint64_t* v) { return v[0] + v[1]; });
    case BinaryOp::sub:
      return node([](const uint64_t* v) { return v[0] - v[1]; });
    case BinaryOp::mul:
      return node([](const uint64_t* v) { return v[0] * v[1]; });
    case BinaryOp::eq:
      return node([](const uint64_t* v) -> uint64_t { return v[0] == v[1]; });
    case BinaryOp::lt:
      return node([](const uint64_t* v) -> uint64_t { return static_cast<Signed>(v[0]) < static_cast<Signed>(v[1]); });
    case BinaryOp::le:
      return node([](const uint64_t* v) -> uint64_t { return static_cast<Signed>(v[0]) <= static_cast<Signed>(v[1]); });
    case BinaryOp::ge:
      return node([](const uint64_t* v) -> uint64_t { return static_cast<Signed>(v[0]) >= static_cast<Signed>(v[1]); });
    default:
      return nullptr;
  }
}

}  // namespace

void Access::vector(Frame& frame, int64_t* out) const {
  Lanes values(lanes);
  for (size_t d = 0; d < index.size(); ++d) {
    if (index[d]->lanes == 1) {
      const int64_t same = static_cast<int64_t>(index[d]->scalar(frame));
      for (int lane = 0; lane < lanes; ++lane) out[lane * index.size() + d] = same;
    } else {
      index[d]->vector(frame, values.data());
      for (int lane = 0; lane < lanes; ++lane) out[lane * index.size() + d] = static_cast<int64_t>(values[lane]);
    }
  }
}

size_t Translator::declare(const Var& v) {
  if (v.type.lanes < 1) fault("variable " + v.name + " has no lanes");
  const size_t slot = var_slots_;
  var_slots_ += v.type.lanes;
  vars_[v.id] = {slot, v.type};
  return slot;
}

size_t Translator::declare(const Buffer& b) {
  if (b->dims.size() > max_rank)
    fault("buffer " + b->name + " has rank " + std::to_string(b->dims.size()) + ", at most " +
          std::to_string(max_rank));
  return arrays_[b->id] = array_slots_++;
}

size_t Translator::find(const Buffer& b) const {
  if (!b) fault("an access without a buffer");
  const auto found = arrays_.find(b->id);
  if (found == arrays_.end()) fault("buffer " + b->name + " is used but not declared");
  return found->second;
}

std::vector<ExprPtr> Translator::exprs(const std::vector<Expr>& list) {
  std::vector<ExprPtr> code;
  for (const Expr& e : list) code.push_back(expr(e));
  return code;
}

Access Translator::access(const Buffer& buffer, const std::vector<Expr>& index, int lanes) {
  Access a{find(buffer), lanes, exprs(index)};
  if (index.size() != buffer->dims.size())
    fault("buffer " + buffer->name + " has rank " + std::to_string(buffer->dims.size()) + ", an index " +
          std::to_string(index.size()));
  for (const ExprPtr& i : a.index)
    if (i->lanes != 1 && i->lanes != lanes)
      fault("buffer " + buffer->name + ": an index of " + std::to_string(i->lanes) + " lanes for " +
            std::to_string(lanes));
  return a;
}

ExprPtr Translator::expr(const Expr& e) {
  if (!e) fault("an expression is absent");
  if (e.lanes() < 1) fault("an expression without lanes");
  ExprPtr code = std::visit([&](const auto& n) { return make(n, e.type()); }, e.node().value);
  if (code->lanes != e.lanes())
    fault("an expression of " + std::to_string(code->lanes) + " lanes is typed " + to_string(e.type()));
  return code;
}

ExprPtr Translator::make(const Const& n, Type type) { return std::make_unique<ConstCode>(type.lanes, n.bits); }

ExprPtr Translator::make(const Var& n, Type type) {
  const auto found = vars_.find(n.id);
  if (found == vars_.end()) fault("variable " + n.name + " is used but not declared");
  if (found->second.type != type)
    fault("variable " + n.name + " is " + to_string(found->second.type) + " but used as " + to_string(type));
  return std::make_unique<VarCode>(type.lanes, found->second.slot);
}

ExprPtr Translator::make(const Load& n, Type type) {
  ExprPtr guard = n.guard ? expr(n.guard) : nullptr, otherwise = n.guard ? expr(n.otherwise) : nullptr;
  if (guard && (guard->lanes != type.lanes || otherwise->lanes != type.lanes))
    fault("a load's guard has other lanes than the load");
  return std::make_unique<LoadCode>(access(n.buffer, n.index, type.lanes), std::move(guard), std::move(otherwise));
}

ExprPtr Translator::make(const Unary& n, Type type) {
  return map(
      type.lanes, [op = n.op, t = type.dtype](const uint64_t* v) { return eval_unary(op, t, v[0]); }, expr(n.a));
}

ExprPtr Translator::make(const Binary& n, Type type) {
  ExprPtr a = expr(n.a), b = expr(n.b);
  const DType t = n.a.dtype();
  if (n.b.dtype() != t) fault(std::string(to_string(n.op)) + " of " + to_string(t) + " and " + to_string(n.b.dtype()));
  if (n.op == BinaryOp::shl || n.op == BinaryOp::shr)
    return map(
        type.lanes,
        [op = n.op, t](const uint64_t* v) {
          if (v[1] >= static_cast<uint64_t>(size_of(t) * 8))
            fault(std::string(to_string(op)) + " of " + to_string(t) + " by " + std::to_string(int_from_bits(t, v[1])));
          return eval_binary(op, t, v[0], v[1]);
        },
        std::move(a), std::move(b));
  if (t == DType::i64)
    if (ExprPtr fast = index_arithmetic(n.op, type.lanes, a, b)) return fast;
  // Evaluating a division by zero faults.
  return map(
      type.lanes, [op = n.op, t](const uint64_t* v) { return eval_binary(op, t, v[0], v[1]); }, std::move(a),
      std::move(b));
}

ExprPtr Translator::make(const Fma& n, Type type) {
  return map(
      type.lanes, [t = type.dtype](const uint64_t* v) { return eval_fma(t, v[0], v[1], v[2]); }, expr(n.a), expr(n.b),
      expr(n.c));
}

ExprPtr Translator::make(const Select& n, Type type) {
  return map(
      type.lanes, [](const uint64_t* v) { return v[0] ? v[1] : v[2]; }, expr(n.condition), expr(n.a), expr(n.b));
}

ExprPtr Translator::make(const Cast& n, Type type) {
  ExprPtr value = expr(n.value);
  return map(
      type.lanes, [from = n.value.dtype(), to = type.dtype](const uint64_t* v) { return eval_cast(from, to, v[0]); },
      std::move(value));
}

ExprPtr Translator::make(const Bitcast& n, Type type) {
  return map(
      type.lanes, [](const uint64_t* v) { return v[0]; }, expr(n.value));
}

ExprPtr Translator::make(const Ramp& n, Type type) {
  ExprPtr base = expr(n.base), stride = expr(n.stride);
  if (base->lanes != 1 || stride->lanes != 1 || !is_int(type.dtype)) fault("a ramp takes scalar integers");
  return std::make_unique<RampCode>(type, std::move(base), std::move(stride));
}

ExprPtr Translator::make(const Broadcast& n, Type type) {
  ExprPtr value = expr(n.value);
  if (value->lanes != 1) fault("a broadcast takes a scalar");
  return std::make_unique<BroadcastCode>(type.lanes, std::move(value));
}

ExprPtr Translator::make(const Shuffle& n, Type) {
  ExprPtr a = expr(n.a), b = n.b ? expr(n.b) : nullptr;
  for (int lane : n.lanes)
    if (lane < 0 || lane >= a->lanes + (b ? b->lanes : 0)) fault("a shuffle of lane " + std::to_string(lane));
  return std::make_unique<ShuffleCode>(std::move(a), std::move(b), n.lanes);
}

ExprPtr Translator::make(const Intrinsic& n, Type) {
  if (n.op == IntrinsicOp::prefetch)
    find(n.buffer);
  else if (n.args.size() != 1)
    fault(std::string(to_string(n.op)) + " takes one operand");
  return std::make_unique<IntrinsicCode>(n.op, exprs(n.args));
}

ExprPtr Translator::make(const Math& n, Type type) {
  const Var argument = make_var("x", type);
  const MathExpansion expansion = expand_math(n, var(argument));
  auto code = std::make_unique<MathCode>(type.lanes);
  const auto define = [&](const Var& var, const Expr& is) {
    ExprPtr value = expr(is);
    code->lets.push_back({std::move(value), declare(var)});
  };
  define(argument, n.a);
  for (const auto& let : expansion.lets) define(let.var, let.value);
  code->value = expr(expansion.value);
  return code;
}

}  // namespace gradloom::ir::interp
