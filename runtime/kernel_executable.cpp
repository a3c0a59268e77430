// A user's own kernel: its arguments are checked against the kernel's declarations, with dims and strides evaluated for
// the scalars given.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string>
#include <vector>

#include "ir/rewrite.h"
#include "runtime/argument.h"
#include "runtime/executable.h"
#include "runtime/kernel_arguments.h"
#include "support/entry.h"
#include "support/lasting.h"

namespace gradloom {
namespace {

[[noreturn]] void refuse_argument(const ir::Kernel& kernel, const std::string& what) {
  throw Error(ErrorCode::invalid_argument, fmt::format("kernel {}: {}", kernel.name, what));
}

bool aligned(const Tensor& tensor, int64_t bytes) {
  return tensor.elements() == 0 || reinterpret_cast<uintptr_t>(tensor.data()) % bytes == 0;
}

ByteRange bytes_of(const Tensor& tensor) { return {tensor.begin_byte(), tensor.end_byte()}; }

void check_buffer(const ir::Kernel& kernel, const DeclaredArguments& declared, size_t i, const Tensor& tensor,
                  std::span<const int64_t> scalars) {
  const ir::Buffer& buffer = kernel.buffers[i];
  const auto refuse_buffer = [&](const std::string& what) {
    refuse_argument(kernel, fmt::format("buffer {} {}", buffer->name, what));
  };
  if (!tensor.present()) refuse_buffer("is absent");
  if (tensor.dtype() != buffer->dtype)
    refuse_buffer(fmt::format("has dtype {}; it must have {}", to_string(tensor.dtype()), to_string(buffer->dtype)));
  const Dims dims = declared.dims(i, scalars), strides = declared.strides(i, scalars);
  if (!(tensor.dims() == dims))
    refuse_buffer(fmt::format("has shape {}; it must have {}", to_string(tensor.dims()), to_string(dims)));
  if (strides.empty() && !tensor.dense())
    refuse_buffer(fmt::format("has strides {}; it must be dense", to_string(tensor.strides())));
  for (int d = 0; d < strides.size() && tensor.elements() > 0; ++d) {
    if (dims[d] > 1 && tensor.strides()[d] != strides[d]) {
      refuse_buffer(fmt::format("has strides {}; it must have {}", to_string(tensor.strides()), to_string(strides)));
    }
  }
  if (buffer->role != ir::Role::in && !strides.empty() && elements_overlap(dims, strides)) {
    refuse_buffer(fmt::format("is written and its elements overlap: its shape is {}, its strides {}", to_string(dims),
                              to_string(strides)));
  }
  if (!aligned(tensor, buffer->alignment)) refuse_buffer(fmt::format("is not aligned to {} bytes", buffer->alignment));
  if (buffer->role != ir::Role::in && !tensor.writable()) refuse_buffer("is read-only; it must be writable");
}

// A kernel's status holds the smallest bad position, not whose check found it: all arguments that checks name.
std::string checked_arguments(const ir::Stmt& nest) {
  std::vector<std::string> names;
  ir::any_of(nest, [&](const ir::Stmt& s) {
    const auto* check = s.as<ir::Check>();
    if (check && !check->argument.empty() && std::find(names.begin(), names.end(), check->argument) == names.end())
      names.push_back(check->argument);
    return false;
  });
  return names.empty() ? "" : fmt::format(" of {}", fmt::join(names, " or "));
}

}  // namespace

KernelExecutable::State::State(std::shared_ptr<Core> core_in, const ir::Kernel& kernel_in, const KernelOptions& options)
    : core(std::move(core_in)),
      kernel(kernel_in),
      entry(core->kernel_for(kernel, options)),
      report(core->last_report()),
      declared(kernel),
      checked(checked_arguments(kernel.body)) {}

void KernelExecutable::State::check(std::span<const Tensor> buffers, std::span<const int64_t> scalars) const {
  declared.check_scalars(scalars);
  if (buffers.size() != kernel.buffers.size())
    refuse_argument(kernel, fmt::format("{} buffers given; it takes {}", buffers.size(), kernel.buffers.size()));
  for (size_t i = 0; i < buffers.size(); ++i) {
    check_buffer(kernel, declared, i, buffers[i], scalars);
    if (buffers[i].device() != core->device())
      refuse_argument(kernel, fmt::format("buffer {} is not in the target's memory", kernel.buffers[i]->name));
    for (size_t other = 0; other < i; ++other) {
      const bool read_only = kernel.buffers[i]->role == ir::Role::in && kernel.buffers[other]->role == ir::Role::in;
      if (!read_only && overlap(bytes_of(buffers[i]), bytes_of(buffers[other]))) {
        refuse_argument(kernel, fmt::format("buffers {} and {} overlap, and one of them is written",
                                            kernel.buffers[other]->name, kernel.buffers[i]->name));
      }
    }
  }
}

void KernelExecutable::State::call(std::span<const Tensor> buffers, std::span<const int64_t> scalars,
                                   const LaunchOptions& launch) const {
  const Entry entered;
  std::vector<int64_t> storage;
  const std::span<const int64_t> slots = scalar_slots(kernel, scalars, storage);
  check(buffers, slots);
  std::vector<void*> data;
  for (const Tensor& tensor : buffers) data.push_back(tensor.data());
  const int64_t bad_position = core->launch(*entry, data.data(), slots.data(), launch);
  if (bad_position != no_bad_position)
    throw Error(ErrorCode::out_of_range,
                fmt::format("kernel {}: a check failed at position {}{}", kernel.name, bad_position, checked));
}

Result<std::monostate> KernelExecutable::operator()(std::span<const Tensor> buffers, std::span<const int64_t> scalars,
                                                    const LaunchOptions& launch) const {
  return capture([&]() -> std::monostate {
    if (!state_)
      throw Error(ErrorCode::invalid_argument, "an empty KernelExecutable was called: it comes from Runtime::compile");
    state_->call(buffers, scalars, launch);
    return {};
  });
}

const KernelReport& KernelExecutable::report() const {
  static constinit Lasting<const KernelReport> none;
  return state_ ? state_->report : *none;
}

}  // namespace gradloom
