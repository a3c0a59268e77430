// A user's own kernel: its arguments are checked against the kernel's declarations, dims and strides evaluated with the scalars given.
#include <fmt/format.h>

#include <optional>

#include "ir/interpret_memory.h"
#include "ir/print.h"
#include "ir/scalar_math.h"
#include "ir/scalar_program.h"
#include "runtime/executable.h"
#include "runtime/float_mode.h"
#include "runtime/outputs.h"

namespace gradloom {
namespace {

// A dim, a stride or a bound of a scalar, over the kernel's scalars. Dims and strides count elements: one that wraps has no value.
struct Declared {
  Declared(const ir::Kernel& kernel, const ir::Expr& e, ir::Overflow on_overflow) : expr(e), overflow(on_overflow) {
    const auto slot_of = [&](const ir::Var& v) {
      for (size_t i = 0; i < kernel.scalars.size(); ++i)
        if (kernel.scalars[i].var.id == v.id) return static_cast<int64_t>(i);
      throw Error(ErrorCode::internal, fmt::format("{} is no scalar of the kernel", v.name));
    };
    program = ir::scalar_program(e, slot_of);
  }
  uint64_t bits(const ir::Kernel& kernel, std::span<const int64_t> scalars) const;
  int64_t count(const ir::Kernel& kernel, std::span<const int64_t> scalars) const { return static_cast<int64_t>(bits(kernel, scalars)); }
  ir::Expr expr;
  ir::ScalarProgram program;
  ir::Overflow overflow;
};

[[noreturn]] void refuse_argument(const ir::Kernel& kernel, const std::string& what) {
  throw Error(ErrorCode::invalid_argument, fmt::format("kernel {}: {}", kernel.name, what));
}

uint64_t Declared::bits(const ir::Kernel& kernel, std::span<const int64_t> scalars) const {
  const std::optional<uint64_t> value = ir::evaluate(program, scalars, overflow);
  if (!value) refuse_argument(kernel, fmt::format("{} cannot be evaluated from the scalars given", ir::print(expr)));
  return *value;
}

std::string number(DType dtype, uint64_t bits) {
  if (is_float(dtype)) return fmt::format("{}", ir::double_from_bits(dtype, bits));
  return dtype == DType::u64 ? fmt::format("{}", bits) : fmt::format("{}", ir::int_from_bits(dtype, bits));
}

}  // namespace

struct DeclaredArguments {
  struct Range {
    Declared value;                    // the scalar itself
    std::optional<Declared> min, max;
  };
  struct Shape {
    std::vector<Declared> dims, strides;
  };
  std::vector<Range> scalars;
  std::vector<Shape> buffers;

  explicit DeclaredArguments(const ir::Kernel& kernel) {
    const auto bound = [&](const ir::Expr& e) { return e ? std::optional(Declared(kernel, e, ir::Overflow::wraps)) : std::nullopt; };
    for (const ir::Scalar& s : kernel.scalars) scalars.push_back({*bound(ir::var(s.var)), bound(s.min), bound(s.max)});
    for (const ir::Buffer& b : kernel.buffers) {
      buffers.emplace_back();
      for (const ir::Expr& e : b->dims) buffers.back().dims.emplace_back(kernel, e, ir::Overflow::has_no_value);
      for (const ir::Expr& e : b->strides) buffers.back().strides.emplace_back(kernel, e, ir::Overflow::has_no_value);
    }
  }
};

namespace {

void check_scalars(const ir::Kernel& kernel, const DeclaredArguments& declared, std::span<const int64_t> scalars) {
  if (scalars.size() != kernel.scalars.size()) refuse_argument(kernel, fmt::format("{} scalars given; it takes {}", scalars.size(), kernel.scalars.size()));
  for (size_t i = 0; i < scalars.size(); ++i) {
    const auto& [scalar, min, max] = declared.scalars[i];
    const DType dtype = scalar.expr.dtype();
    const uint64_t value = scalar.bits(kernel, scalars);
    const auto refuse = [&](const char* side, const Declared& bound, uint64_t bits) {
      refuse_argument(kernel, fmt::format("scalar {} is {}; it must be at {} {}", kernel.scalars[i].var.name, number(dtype, value), side,
                                          number(bound.expr.dtype(), bits)));
    };
    if (min)
      if (const uint64_t low = min->bits(kernel, scalars); ir::interp::less(dtype, value, min->expr.dtype(), low)) refuse("least", *min, low);
    if (max)
      if (const uint64_t high = max->bits(kernel, scalars); ir::interp::less(max->expr.dtype(), high, dtype, value)) refuse("most", *max, high);
  }
}

void check_buffer(const ir::Kernel& kernel, const ir::Buffer& buffer, const DeclaredArguments::Shape& declared, const Tensor& tensor,
                  std::span<const int64_t> scalars) {
  const auto refuse_buffer = [&](const std::string& what) { refuse_argument(kernel, fmt::format("buffer {} {}", buffer->name, what)); };
  if (!tensor.present()) refuse_buffer("is absent");
  if (tensor.dtype() != buffer->dtype) refuse_buffer(fmt::format("has dtype {}; it must have {}", to_string(tensor.dtype()), to_string(buffer->dtype)));
  Dims dims, strides;
  for (const Declared& dim : declared.dims) dims.push_back(dim.count(kernel, scalars));
  if (!(tensor.dims() == dims)) refuse_buffer(fmt::format("has shape {}; it must have {}", to_string(tensor.dims()), to_string(dims)));
  for (const Declared& stride : declared.strides) strides.push_back(stride.count(kernel, scalars));
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
    : core(std::move(core_in)), kernel(kernel_in), entry(core->build_own(kernel)), declared(std::make_shared<DeclaredArguments>(kernel)) {}

void KernelExecutable::State::check(std::span<const Tensor> buffers, std::span<const int64_t> scalars) const {
  check_scalars(kernel, *declared, scalars);
  if (buffers.size() != kernel.buffers.size()) refuse_argument(kernel, fmt::format("{} buffers given; it takes {}", buffers.size(), kernel.buffers.size()));
  for (size_t i = 0; i < buffers.size(); ++i) {
    check_buffer(kernel, kernel.buffers[i], declared->buffers[i], buffers[i], scalars);
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
