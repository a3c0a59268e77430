#include "ir/scalar_program.h"

#include <limits>

#include "ir/rewrite.h"
#include "ir/scalar_math.h"

namespace gradloom::ir {
namespace {

template <class... F>
struct Overloaded : F... {
  using F::operator()...;
};

struct Value {
  uint64_t bits = 0;
  bool known = true;
};

uint64_t low_bits(DType dtype, uint64_t bits) {
  const int width = 8 * size_of(dtype);
  if (width < 64) bits &= (uint64_t{1} << width) - 1;
  return dtype == DType::boolean ? bits != 0 : bits;
}

int64_t product_of_sizes(int64_t a, int64_t b) {
  int64_t product = 0;
  if (a <= 0 || b <= 0) return 0;
  return __builtin_mul_overflow(a, b, &product) ? std::numeric_limits<int64_t>::max() : product;
}

bool overflows(UnaryOp op, int64_t a) {
  return (op == UnaryOp::neg || op == UnaryOp::abs) && a == std::numeric_limits<int64_t>::min();
}

bool overflows(BinaryOp op, int64_t a, int64_t b) {
  int64_t result = 0;
  switch (op) {
    case BinaryOp::add:
      return __builtin_add_overflow(a, b, &result);
    case BinaryOp::sub:
      return __builtin_sub_overflow(a, b, &result);
    case BinaryOp::mul:
      return __builtin_mul_overflow(a, b, &result);
    case BinaryOp::floor_div:
      return a == std::numeric_limits<int64_t>::min() && b == -1;
    case BinaryOp::shl:
      return static_cast<int64_t>(static_cast<uint64_t>(a) << b) >> b != a;
    default:
      return false;
  }
}

Value unary_value(const ScalarCode& code, Value a, bool exact) {
  const auto op = static_cast<UnaryOp>(code.what);
  if (exact && code.dtype == DType::i64 && overflows(op, static_cast<int64_t>(a.bits))) a.known = false;
  return {a.known ? eval_unary(op, code.dtype, a.bits) : 0, a.known};
}

Value binary_value(const ScalarCode& code, const Value& a, const Value& b, bool exact) {
  const auto op = static_cast<BinaryOp>(code.what);
  bool known = a.known && b.known && is_defined(op, code.dtype, b.bits);
  if (known && exact && code.dtype == DType::i64)
    known = !overflows(op, static_cast<int64_t>(a.bits), static_cast<int64_t>(b.bits));
  return {known ? eval_binary(op, code.dtype, a.bits, b.bits) : 0, known};
}

size_t operands(ScalarCode::Op op) {
  switch (op) {
    case ScalarCode::constant:
    case ScalarCode::slot:
      return 0;
    case ScalarCode::unary:
    case ScalarCode::cast:
      return 1;
    case ScalarCode::binary:
    case ScalarCode::size:
      return 2;
    case ScalarCode::fma:
    case ScalarCode::select:
      return 3;
  }
  return 0;
}

}  // namespace

bool is_scalar_arithmetic(const Expr& e) {
  return !any_of(e, [](const Expr& x) {
    return x.lanes() > 1 || x.as<Load>() || x.as<Intrinsic>() || x.as<Shuffle>() || x.as<Math>();
  });
}

void append(ScalarProgram& program, const Expr& e, const SlotOf& slot_of) {
  const auto push = [&](ScalarCode::Op op, DType dtype, int what = 0, int64_t value = 0) {
    program.push_back({.op = op, .value = value, .dtype = dtype, .what = static_cast<uint8_t>(what)});
  };
  const auto next = [&](const Expr& operand) { append(program, operand, slot_of); };
  const auto refuse = [&] {
    throw Error(ErrorCode::unsupported,
                "what is evaluated outside a kernel is scalar arithmetic, got " + to_string(e.type()));
  };
  std::visit(
      Overloaded{
          [&](const Const& n) { push(ScalarCode::constant, e.dtype(), 0, static_cast<int64_t>(n.bits)); },
          [&](const Var& n) { n.type.scalar() ? push(ScalarCode::slot, n.type.dtype, 0, slot_of(n)) : refuse(); },
          [&](const Unary& n) { next(n.a), push(ScalarCode::unary, n.a.dtype(), static_cast<int>(n.op)); },
          [&](const Binary& n) { next(n.a), next(n.b), push(ScalarCode::binary, n.a.dtype(), static_cast<int>(n.op)); },
          [&](const Fma& n) { next(n.a), next(n.b), next(n.c), push(ScalarCode::fma, n.a.dtype()); },
          [&](const Select& n) { next(n.condition), next(n.a), next(n.b), push(ScalarCode::select, n.a.dtype()); },
          [&](const Cast& n) { next(n.value), push(ScalarCode::cast, n.value.dtype(), static_cast<int>(e.dtype())); },
          [&](const Bitcast& n) { next(n.value); },  // same size: the same bits
          [&](const Load&) { refuse(); },
          [&](const Ramp&) { refuse(); },
          [&](const Broadcast&) { refuse(); },
          [&](const Shuffle&) { refuse(); },
          [&](const Intrinsic&) { refuse(); },
          [&](const Math&) { refuse(); },
      },
      e.node().value);
}

ScalarProgram scalar_program(const Expr& e, const SlotOf& slot_of) {
  ScalarProgram program;
  append(program, e, slot_of);
  return program;
}

bool is_well_formed(const ScalarProgram& program, int64_t slots) {
  size_t depth = 0;
  for (const ScalarCode& code : program) {
    if (code.op > ScalarCode::last || static_cast<int>(code.dtype) >= dtype_count || depth < operands(code.op))
      return false;
    if (code.op == ScalarCode::slot && (code.value < 0 || code.value >= slots)) return false;
    if (code.op == ScalarCode::unary && code.what > static_cast<uint8_t>(UnaryOp::trunc)) return false;
    if (code.op == ScalarCode::binary && code.what > static_cast<uint8_t>(BinaryOp::ge)) return false;
    if (code.op == ScalarCode::cast && code.what >= dtype_count) return false;
    depth += 1 - operands(code.op);
  }
  return depth == 1;
}

std::optional<uint64_t> evaluate(const ScalarProgram& program, std::span<const int64_t> slots, Overflow overflow) {
  const bool exact = overflow == Overflow::has_no_value;
  std::vector<Value> stack;
  stack.reserve(8);
  for (const ScalarCode& code : program) {
    const size_t taken = operands(code.op);
    const Value* const v = stack.data() + (stack.size() - taken);
    Value result;
    switch (code.op) {
      case ScalarCode::constant:
        result.bits = static_cast<uint64_t>(code.value);
        break;
      case ScalarCode::slot:
        result.bits = low_bits(code.dtype, static_cast<uint64_t>(slots[static_cast<size_t>(code.value)]));
        break;
      case ScalarCode::unary:
        result = unary_value(code, v[0], exact);
        break;
      case ScalarCode::binary:
        result = binary_value(code, v[0], v[1], exact);
        break;
      case ScalarCode::fma:
        result = {eval_fma(code.dtype, v[0].bits, v[1].bits, v[2].bits), v[0].known && v[1].known && v[2].known};
        break;
      case ScalarCode::select:
        result = v[0].bits ? v[1] : v[2];
        result.known &= v[0].known;
        break;
      case ScalarCode::cast:
        result = {eval_cast(code.dtype, static_cast<DType>(code.what), v[0].bits), v[0].known};
        break;
      case ScalarCode::size:
        result = {
            static_cast<uint64_t>(product_of_sizes(static_cast<int64_t>(v[0].bits), static_cast<int64_t>(v[1].bits))),
            v[0].known && v[1].known};
        break;
    }
    stack.resize(stack.size() - taken);
    stack.push_back(result);
  }
  if (stack.size() != 1 || !stack[0].known) return std::nullopt;
  return stack[0].bits;
}

}  // namespace gradloom::ir
