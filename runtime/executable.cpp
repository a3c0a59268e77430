#include "runtime/executable.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <optional>

#include "support/entry.h"
#include "support/lasting.h"

namespace gradloom {
namespace {

[[noreturn]] void throw_empty() {
  throw Error(ErrorCode::invalid_argument, "an empty Executable was called: it comes from Runtime::compile");
}

}  // namespace

Executable::State::State(std::shared_ptr<Core> core_in, const Op& op_in, std::span<const Tensor> inputs,
                         const Attributes& attributes_in, const RunOptions& options_in, uint32_t wanted)
    : core(std::move(core_in)),
      op(op_in),
      attributes(attributes_in),
      options(without_launch(options_in)),
      outputs_wanted(wanted) {
  const InputArguments arguments = input_arguments(op.schema(), inputs);
  check_devices(op.schema(), core->device_for(op.schema()), span_of(arguments), {});
  first = std::make_shared<KnownCall>(settings(), span_of(arguments), outputs_wanted);
  strategy = &choose_strategy(op, first->plan, options, core->target());
  const Operands operands(op.schema(), span_of(arguments));
  const Request request = operands.request(attributes, outputs_wanted, options.accumulate, core->level(options));
  aligned_kernel = core->kernel_for({op, first->plan, *strategy, options, outputs_wanted, aligned_outputs, &request});
  report = core->last_report();
}

// Other arguments than before are accepted when they need the same kernel: a moving window, any shape.
std::shared_ptr<const KnownCall> Executable::State::check_again(Arguments inputs) {
  {
    std::lock_guard lock(mutex);
    if (latest && latest->same(inputs)) return latest;
  }
  auto checked = std::make_shared<const KnownCall>(settings(), inputs, outputs_wanted);
  const KernelKey key = core->key_in_memory({op, checked->plan, *strategy, options, outputs_wanted, aligned_outputs});
  if (!std::equal(key.words().begin(), key.words().end(), aligned_kernel->key.begin(), aligned_kernel->key.end())) {
    const std::string difference = first->difference(op.schema(), inputs, "this handle was compiled for");
    throw Error(ErrorCode::invalid_argument,
                fmt::format("{}: {}", op.schema().name,
                            difference.empty() ? "the values of the shape-like inputs need another kernel than those "
                                                 "that this handle was compiled for"
                                               : difference));
  }
  if (options.any_shape)
    // Throws unless it serves this shape too.
    choose_strategy(op, checked->plan, strategy->name, core->target(), serves_any_shape(checked->plan));
  std::lock_guard lock(mutex);
  latest = checked;
  return checked;
}

const KernelEntry* Executable::State::unaligned(const Plan& plan) {
  if (const KernelEntry* ready = unaligned_ready.load(std::memory_order_acquire)) return ready;
  const NoCancel no_cancel;
  KernelHandle entry = core->kernel_for({op, plan, *strategy, options, outputs_wanted, any_outputs});
  std::lock_guard lock(mutex);
  if (!unaligned_kernel) unaligned_kernel = std::move(entry);
  unaligned_ready.store(unaligned_kernel.get(), std::memory_order_release);
  return unaligned_kernel.get();
}

void Executable::State::call(std::span<const Tensor> inputs, std::span<const Tensor> outputs, std::span<Tensor> trimmed,
                             const LaunchOptions& launch) {
  const FloatMode mode;
  // One thread that launches a kernel which is there waits for nothing: it cannot be cancelled meanwhile.
  std::optional<NoCancel> no_cancel;
  if (core->threads().count() > 1 || core->target().gpu) no_cancel.emplace();
  const OpSchema& schema = op.schema();
  const int device = core->device_for(schema);
  const InputArguments in = input_arguments(schema, inputs);
  const OutputArguments out = output_arguments(schema, outputs);
  check_devices(schema, device, span_of(in), span_of(out));
  std::shared_ptr<const KnownCall> again;  // keeps `known` alive during the call
  const KnownCall* known = first.get();
  if (!known->same(span_of(in))) {
    again = check_again(span_of(in));
    known = again.get();
  }
  const Plan& plan = known->plan;
  if (const uint32_t wrong = present_outputs(span_of(out)) ^ known->outputs_had) {
    const int o = std::countr_zero(wrong);
    const bool expected = known->outputs_had >> o & 1;
    throw Error(ErrorCode::invalid_argument,
                fmt::format("{}: output {} ({}) is {}; this handle was compiled {} it", schema.name, o,
                            schema.outputs[o].name, expected ? "absent" : "given", expected ? "with" : "without"));
  }
  check_outputs(schema, plan, span_of(in), span_of(out));
  launch_checked(
      *core, {op, plan, device, span_of(in), span_of(out), launch, 0, options.accumulate},
      [&](int64_t alignment) { return alignment == aligned_outputs ? aligned_kernel.get() : unaligned(plan); },
      [&](const auto& explained) {
        const Operands operands(schema, span_of(in));
        throw explained(operands.request(attributes, outputs_wanted, options.accumulate, core->level(options)));
      },
      [&](size_t o, const Dims& found) {
        if (!trimmed.empty()) trimmed[o] = of_size(trimmed[o], found);
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
