// A user's own kernel: its arguments are checked against the kernel's declarations, dims and strides evaluated with the scalars given.
#include <fmt/format.h>

#include <optional>

#include "ir/print.h"
#include "ir/scalar_math.h"
#include "runtime/executable.h"
#include "ir/float_mode.h"
#include "runtime/outputs.h"

namespace gradloom {
namespace {

bool wraps(ir::BinaryOp op, int64_t x, int64_t y) {
  int64_t result = 0;
  if (op == ir::BinaryOp::add) return __builtin_add_overflow(x, y, &result);
  if (op == ir::BinaryOp::sub) return __builtin_sub_overflow(x, y, &result);
  return op == ir::BinaryOp::mul && __builtin_mul_overflow(x, y, &result);
}

// A scalar expression's bits over the kernel's scalars; nullopt for what a dim or bound may not hold (a load, a vector), and for a size that wraps.
std::optional<uint64_t> evaluate(const ir::Expr& e, const ir::Kernel& kernel, std::span<const int64_t> scalars) {
  const auto next = [&](const ir::Expr& operand) { return evaluate(operand, kernel, scalars); };
  if (const auto* c = e.as<ir::Const>()) return c->bits;
  if (const auto* v = e.as<ir::Var>()) {
    for (size_t i = 0; i < kernel.scalars.size(); ++i) {
      if (kernel.scalars[i].var.id == v->id) return ir::eval_cast(DType::i64, e.dtype(), static_cast<uint64_t>(scalars[i]));
    }
    return std::nullopt;
  }
  if (const auto* cast = e.as<ir::Cast>()) {
    const auto value = next(cast->value);
    return value ? std::optional(ir::eval_cast(cast->value.dtype(), e.dtype(), *value)) : std::nullopt;
  }
  if (const auto* u = e.as<ir::Unary>()) {
    const auto a = next(u->a);
    return a ? std::optional(ir::eval_unary(u->op, u->a.dtype(), *a)) : std::nullopt;
  }
  if (const auto* s = e.as<ir::Select>()) {
    const auto condition = next(s->condition);
    return condition ? next(*condition ? s->a : s->b) : std::nullopt;
  }
  if (const auto* b = e.as<ir::Binary>()) {
    const auto x = next(b->a), y = next(b->b);
    if (!x || !y) return std::nullopt;
    const bool divides = b->op == ir::BinaryOp::floor_div || b->op == ir::BinaryOp::floor_mod;
    const bool shifts = b->op == ir::BinaryOp::shl || b->op == ir::BinaryOp::shr;
    if ((divides && *y == 0) || (shifts && *y >= 8u * size_of(b->a.dtype()))) return std::nullopt;
    if (b->a.dtype() == DType::i64 && wraps(b->op, static_cast<int64_t>(*x), static_cast<int64_t>(*y))) return std::nullopt;
    return ir::eval_binary(b->op, b->a.dtype(), *x, *y);
  }
  return std::nullopt;
}

[[noreturn]] void refuse_argument(const ir::Kernel& kernel, const std::string& what) {
  throw Error(ErrorCode::invalid_argument, fmt::format("kernel {}: {}", kernel.name, what));
}

int64_t integer(const ir::Expr& e, const ir::Kernel& kernel, std::span<const int64_t> scalars) {
  const auto bits = evaluate(e, kernel, scalars);
  if (!bits) refuse_argument(kernel, fmt::format("{} cannot be evaluated from the scalars given", ir::print(e)));
  return ir::int_from_bits(e.dtype(), *bits);
}

void check_scalars(const ir::Kernel& kernel, std::span<const int64_t> scalars) {
  if (scalars.size() != kernel.scalars.size()) refuse_argument(kernel, fmt::format("{} scalars given; it takes {}", scalars.size(), kernel.scalars.size()));
  for (size_t i = 0; i < scalars.size(); ++i) {
    const ir::Scalar& scalar = kernel.scalars[i];
    if (!is_int(scalar.var.type.dtype)) continue;
    const int64_t value = ir::int_from_bits(scalar.var.type.dtype, ir::eval_cast(DType::i64, scalar.var.type.dtype, static_cast<uint64_t>(scalars[i])));
    if (scalar.min && value < integer(scalar.min, kernel, scalars)) {
      refuse_argument(kernel, fmt::format("scalar {} is {}; it must be at least {}", scalar.var.name, value, integer(scalar.min, kernel, scalars)));
    }
    if (scalar.max && value > integer(scalar.max, kernel, scalars)) {
      refuse_argument(kernel, fmt::format("scalar {} is {}; it must be at most {}", scalar.var.name, value, integer(scalar.max, kernel, scalars)));
    }
  }
}

void check_buffer(const ir::Kernel& kernel, const ir::Buffer& buffer, const Tensor& tensor, std::span<const int64_t> scalars) {
  const auto refuse_buffer = [&](const std::string& what) { refuse_argument(kernel, fmt::format("buffer {} {}", buffer->name, what)); };
  if (!tensor.present()) refuse_buffer("is absent");
  if (tensor.dtype() != buffer->dtype) refuse_buffer(fmt::format("has dtype {}; it must have {}", to_string(tensor.dtype()), to_string(buffer->dtype)));
  Dims dims, strides;
  for (const ir::Expr& dim : buffer->dims) dims.push_back(integer(dim, kernel, scalars));
  if (!(tensor.dims() == dims)) refuse_buffer(fmt::format("has shape {}; it must have {}", to_string(tensor.dims()), to_string(dims)));
  for (const ir::Expr& stride : buffer->strides) strides.push_back(integer(stride, kernel, scalars));
  if (strides.empty() && !tensor.dense()) refuse_buffer(fmt::format("has strides {}; it must be dense", to_string(tensor.strides())));
  for (int i = 0; i < strides.size() && tensor.elements() > 0; ++i) {
    if (dims[i] > 1 && tensor.strides()[i] != strides[i]) {
      refuse_buffer(fmt::format("has strides {}; it must have {}", to_string(tensor.strides()), to_string(strides)));
    }
  }
  if (!aligned(tensor, buffer->alignment)) refuse_buffer(fmt::format("is not aligned to {} bytes", buffer->alignment));
  if (buffer->role != ir::Role::in && !tensor.writable()) refuse_buffer("is read-only; it must be writable");
}

}  // namespace

KernelExecutable::State::State(std::shared_ptr<Core> core_in, const ir::Kernel& kernel_in)
    : core(std::move(core_in)), kernel(kernel_in), entry(core->build_own(kernel)) {}

void KernelExecutable::State::check(std::span<const Tensor> buffers, std::span<const int64_t> scalars) const {
  check_scalars(kernel, scalars);
  if (buffers.size() != kernel.buffers.size()) refuse_argument(kernel, fmt::format("{} buffers given; it takes {}", buffers.size(), kernel.buffers.size()));
  for (size_t i = 0; i < buffers.size(); ++i) {
    check_buffer(kernel, kernel.buffers[i], buffers[i], scalars);
    if (buffers[i].device() != core->device()) refuse_argument(kernel, fmt::format("buffer {} is not in the target's memory", kernel.buffers[i]->name));
    for (size_t other = 0; other < i; ++other) {
      const bool read_only = kernel.buffers[i]->role == ir::Role::in && kernel.buffers[other]->role == ir::Role::in;
      if (!read_only && overlap(buffers[i], buffers[other])) {
        refuse_argument(kernel, fmt::format("buffers {} and {} overlap, and one of them is written", kernel.buffers[other]->name, kernel.buffers[i]->name));
      }
    }
  }
}

void KernelExecutable::State::call(std::span<const Tensor> buffers, std::span<const int64_t> scalars, const LaunchOptions& launch) const {
  FloatMode mode;
  check(buffers, scalars);
  std::vector<void*> data;
  for (const Tensor& tensor : buffers) data.push_back(tensor.data());
  const int64_t bad_position = core->launch(*entry, data.data(), scalars.data(), launch);
  if (bad_position != no_bad_position) throw Error(ErrorCode::out_of_range, fmt::format("kernel {}: a check failed at position {}", kernel.name, bad_position));
}

Result<std::monostate> KernelExecutable::operator()(std::span<const Tensor> buffers, std::span<const int64_t> scalars, const LaunchOptions& launch) const {
  return capture([&]() -> std::monostate {
    if (!state_) throw Error(ErrorCode::invalid_argument, "an empty KernelExecutable was called: it comes from Runtime::compile");
    state_->call(buffers, scalars, launch);
    return {};
  });
}

}  // namespace gradloom
