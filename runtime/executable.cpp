#include "runtime/executable.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "support/entry.h"
#include "support/lasting.h"

namespace gradloom {
namespace {

bool shape_like(const OpSchema& schema, size_t input) {
  return input < schema.inputs.size() && schema.inputs[input].shape_like;
}

bool same_place(const Operand& operand, const Tensor& tensor) {
  return operand.present == tensor.present() &&
         (!operand.present ||
          (operand.dtype == tensor.dtype() && operand.dims == tensor.dims() && operand.strides == tensor.strides()));
}

std::string describe(bool present, DType dtype, const Dims& dims, const Dims& strides) {
  if (!present) return "absent";
  return fmt::format("{}{}{}", onnx_name(dtype), to_string(dims),
                     is_dense(dims, strides) ? "" : " with strides " + to_string(strides));
}

[[noreturn]] void throw_empty() {
  throw Error(ErrorCode::invalid_argument, "an empty Executable was called: it comes from Runtime::compile");
}

}  // namespace

bool Executable::State::Checked::same(const OpSchema& schema, std::span<const Tensor> tensors) const {
  const int count = std::max(inputs.size(), static_cast<int>(tensors.size()));
  for (int i = 0; i < count; ++i) {
    if (i >= inputs.size() || static_cast<size_t>(i) >= tensors.size()) {
      if (i < inputs.size() ? inputs[i].present : tensors[i].present()) return false;
      continue;
    }
    const Tensor& tensor = tensors[i];
    if (!same_place(inputs[i], tensor)) return false;
    if (!inputs[i].present || !shape_like(schema, i)) continue;
    if (!tensor.dense()) return false;
    const size_t bytes = tensor.end_byte() - tensor.begin_byte();
    if (values[i].size() != bytes || (bytes != 0 && std::memcmp(values[i].data(), tensor.data(), bytes) != 0))
      return false;
  }
  return true;
}

Executable::State::State(std::shared_ptr<Core> core_in, const Op& op_in, std::span<const Tensor> inputs,
                         const Attributes& attributes_in, const RunOptions& options_in, uint32_t wanted)
    : core(std::move(core_in)), op(op_in), attributes(attributes_in), options(options_in), outputs_wanted(wanted) {
  check_devices(op.schema(), core->device_for(op.schema()), inputs, {});
  first = check(inputs);
  strategy = &choose_strategy(op, first->plan, options, core->target());
  const Operands operands(op.schema(), inputs);
  const Request request = operands.request(attributes, outputs_wanted, options.accumulate, core->level(options));
  aligned_kernel = core->kernel_for({op, first->plan, *strategy, options, outputs_wanted, aligned_outputs, &request});
  report = core->last_report();
}

std::shared_ptr<const Executable::State::Checked> Executable::State::check(std::span<const Tensor> inputs) const {
  const Operands operands(op.schema(), inputs);
  auto checked = std::make_shared<Checked>();
  checked->plan = op.check(operands.request(attributes, outputs_wanted, options.accumulate, core->level(options)));
  checked->values.resize(inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    checked->inputs.push_back(operands.span()[i]);
    const Operand& operand = checked->inputs.back();
    if (!operand.host) continue;
    const char* values = static_cast<const char*>(operand.host);
    checked->values[i].assign(values, values + inputs[i].elements() * size_of(operand.dtype));
  }
  // It points to the caller's memory.
  for (int i = 0; i < checked->inputs.size(); ++i) checked->inputs[i].host = nullptr;
  return checked;
}

// Other arguments than before are accepted when they need the same kernel: a moving window, any shape.
std::shared_ptr<const Executable::State::Checked> Executable::State::check_again(std::span<const Tensor> inputs) {
  std::shared_ptr<const Checked> last;
  {
    std::lock_guard lock(mutex);
    last = latest;
  }
  if (last && last->same(op.schema(), inputs)) return last;
  std::shared_ptr<const Checked> checked = check(inputs);
  const KernelKey key({op, checked->plan, *strategy, options, outputs_wanted, aligned_outputs});
  if (!std::equal(key.words().begin(), key.words().end(), aligned_kernel->key.begin(), aligned_kernel->key.end())) {
    throw Error(ErrorCode::invalid_argument, fmt::format("{}: {}", op.schema().name, difference(inputs)));
  }
  if (options.any_shape)
    // Throws unless it serves this shape too.
    choose_strategy(op, checked->plan, strategy->name, core->target(), serves_any_shape(checked->plan));
  std::lock_guard lock(mutex);
  latest = checked;
  return checked;
}

std::string Executable::State::difference(std::span<const Tensor> inputs) const {
  const Tensor absent;
  for (int i = 0; i < std::max(first->inputs.size(), static_cast<int>(inputs.size())); ++i) {
    const Operand was = i < first->inputs.size() ? first->inputs[i] : Operand{};
    const Tensor& is = static_cast<size_t>(i) < inputs.size() ? inputs[i] : absent;
    if (same_place(was, is)) continue;
    return fmt::format("input {} ({}) is {}; this handle was compiled for {}", i, op.schema().inputs[i].name,
                       describe(is.present(), is.dtype(), is.dims(), is.strides()),
                       describe(was.present, was.dtype, was.dims, was.strides));
  }
  return "the values of the shape-like inputs need another kernel than those that this handle was compiled for";
}

const KernelEntry* Executable::State::unaligned(const Plan& plan) {
  if (const KernelEntry* ready = unaligned_ready.load(std::memory_order_acquire)) return ready;
  KernelHandle entry = core->kernel_for({op, plan, *strategy, options, outputs_wanted, any_outputs});
  std::lock_guard lock(mutex);
  if (!unaligned_kernel) unaligned_kernel = std::move(entry);
  unaligned_ready.store(unaligned_kernel.get(), std::memory_order_release);
  return unaligned_kernel.get();
}

void Executable::State::call(std::span<const Tensor> inputs, std::span<const Tensor> outputs, std::span<Tensor> trimmed,
                             const LaunchOptions& launch) {
  const Entry entered;
  const OpSchema& schema = op.schema();
  const int device = core->device_for(schema);
  check_devices(schema, device, inputs, outputs);
  std::shared_ptr<const Checked> again;  // keeps `checked` alive during the call
  const Checked* checked = first.get();
  if (!checked->same(schema, inputs)) {
    again = check_again(inputs);
    checked = again.get();
  }
  const Plan& plan = checked->plan;
  const uint32_t given = present_outputs(schema, outputs);
  for (int o = 0; o < static_cast<int>(schema.outputs.size()); ++o) {
    const bool expected = plan.outputs[o].wanted && (outputs_wanted >> o & 1);
    if (expected != static_cast<bool>(given >> o & 1)) {
      throw Error(ErrorCode::invalid_argument,
                  fmt::format("{}: output {} ({}) is {}; this handle was compiled {} it", schema.name, o,
                              schema.outputs[o].name, expected ? "absent" : "given", expected ? "with" : "without"));
    }
  }
  check_outputs(schema, plan, inputs, outputs);
  launch_checked(
      *core, {op, plan, device, inputs, outputs, trimmed, launch},
      [&](int64_t alignment) { return alignment == aligned_outputs ? aligned_kernel.get() : unaligned(plan); },
      [&](const auto& explained) {
        const Operands operands(schema, inputs);
        throw explained(operands.request(attributes, outputs_wanted, options.accumulate, core->level(options)));
      });
}

Result<std::monostate> Executable::operator()(std::span<const Tensor> inputs, std::span<const Tensor> outputs,
                                              const LaunchOptions& launch) const {
  return capture([&]() -> std::monostate {
    if (!state_) throw_empty();
    state_->call(inputs, outputs, {}, launch);
    return {};
  });
}

Result<std::monostate> Executable::run_into(std::span<const Tensor> inputs, std::span<Tensor> outputs,
                                            const LaunchOptions& launch) const {
  return capture([&]() -> std::monostate {
    if (!state_) throw_empty();
    state_->call(inputs, outputs, outputs, launch);
    return {};
  });
}

const KernelReport& Executable::report() const {
  static constinit Lasting<const KernelReport> none;
  return state_ ? state_->report : *none;
}

}  // namespace gradloom
