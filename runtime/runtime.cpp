#include "runtime/runtime.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/call.h"
#include "runtime/executable.h"
#include "runtime/float_mode.h"
#include "runtime/outputs.h"
#include "runtime/prewarm.h"

namespace gradloom {
namespace {

const Op& op_named(std::string_view name) {
  if (const Op* op = find_op(name)) return *op;
  std::string known;
  for (const Op* op : all_ops()) known += (known.empty() ? "" : ", ") + op->schema().name;
  throw Error(ErrorCode::unsupported, fmt::format("there is no op \"{}\"; there are: {}", name, known));
}

void run_checked(Core& core, const Op& op, const Request& request, Plan& plan, std::span<const Tensor> inputs, std::span<Tensor> outputs, const RunOptions& options) {
  const CallBuffers buffers(core, core.device_for(op.schema()), plan, inputs, outputs, options.launch);
  const std::string strategy = choose_strategy(op, plan, options.strategy, core.target());
  const KernelHandle entry = core.kernel_by_policy({op, plan, strategy, options, request.outputs_wanted, buffers.alignment, &request});
  const int64_t bad_position = launch_plan(core, *entry, plan, buffers.views, options.launch);
  if (bad_position != no_bad_position) throw explain(core, op, request, plan, bad_position, inputs);
  trim_outputs(op, plan, buffers.outputs, outputs);
}

// The bits of outputs that the schema has.
uint32_t schema_outputs(const OpSchema& schema) { return static_cast<uint32_t>((uint64_t{1} << schema.outputs.size()) - 1); }

std::vector<Tensor> run_fresh(Core& core, const Op& op, std::span<const Tensor> inputs, const Attributes& attributes, const RunOptions& options) {
  FloatMode mode;
  if (options.accumulate) {
    throw Error(ErrorCode::invalid_argument, fmt::format("{}: accumulate adds into outputs that the caller gives; use run_into", op.schema().name));
  }
  const int device = core.device_for(op.schema());
  check_devices(op.schema(), device, inputs, {});
  const Operands operands(op.schema(), inputs);
  const Request request = operands.request(attributes, options.outputs_wanted & schema_outputs(op.schema()), false, options.determinism);
  Plan plan = op.check(request);
  std::vector<Tensor> outputs(op.schema().outputs.size());
  for (int o = 0; o < static_cast<int>(outputs.size()); ++o) {
    const OutputInfo& info = plan.outputs[o];
    if (info.wanted && (request.outputs_wanted >> o & 1)) outputs[o] = core.allocate(device, info.dtype, info.dims, options.launch);
  }
  run_checked(core, op, request, plan, inputs, outputs, options);
  return outputs;
}

std::monostate run_given(Core& core, const Op& op, std::span<const Tensor> inputs, std::span<Tensor> outputs, const Attributes& attributes,
                         const RunOptions& options) {
  FloatMode mode;
  check_devices(op.schema(), core.device_for(op.schema()), inputs, outputs);
  const Operands operands(op.schema(), inputs);
  const Request request = operands.request(attributes, present_outputs(op.schema(), outputs), options.accumulate, options.determinism);
  Plan plan = op.check(request);
  check_outputs(op.schema(), plan, inputs, outputs);
  run_checked(core, op, request, plan, inputs, outputs, options);
  return {};
}

}  // namespace

Runtime::Runtime(RuntimeOptions options) : core_(std::make_shared<Core>(std::move(options))) {}
Runtime::~Runtime() = default;

Result<std::vector<Tensor>> Runtime::run(std::string_view op, std::span<const Tensor> inputs, const Attributes& attributes, const RunOptions& options) {
  return capture([&] { return run_fresh(*core_, op_named(op), inputs, attributes, options); });
}

Result<std::vector<Tensor>> Runtime::run(const Op& op, std::span<const Tensor> inputs, const Attributes& attributes, const RunOptions& options) {
  return capture([&] { return run_fresh(*core_, op, inputs, attributes, options); });
}

Result<std::monostate> Runtime::run_into(std::string_view op, std::span<const Tensor> inputs, std::span<Tensor> outputs, const Attributes& attributes,
                                         const RunOptions& options) {
  return capture([&] { return run_given(*core_, op_named(op), inputs, outputs, attributes, options); });
}

Result<std::monostate> Runtime::run_into(const Op& op, std::span<const Tensor> inputs, std::span<Tensor> outputs, const Attributes& attributes,
                                         const RunOptions& options) {
  return capture([&] { return run_given(*core_, op, inputs, outputs, attributes, options); });
}

Result<Executable> Runtime::compile(std::string_view op, std::span<const Tensor> inputs, const Attributes& attributes, const RunOptions& options) {
  return capture([&] { return compile(op_named(op), inputs, attributes, options).value(); });
}

Result<Executable> Runtime::compile(const Op& op, std::span<const Tensor> inputs, const Attributes& attributes, const RunOptions& options) {
  return capture([&] {
    FloatMode mode;
    Executable executable;
    executable.state_ = std::make_shared<Executable::State>(core_, op, inputs, attributes, options, options.outputs_wanted & schema_outputs(op.schema()));
    return executable;
  });
}

Result<KernelExecutable> Runtime::compile(const ir::Kernel& kernel) {
  return capture([&] {
    FloatMode mode;
    KernelExecutable executable;
    executable.state_ = std::make_shared<KernelExecutable::State>(core_, kernel);
    return executable;
  });
}

const KernelReport& Runtime::last_report() const { return core_->last_report(); }
Stats Runtime::stats() const { return core_->stats(); }
std::vector<CallKey> Runtime::used_calls() const { return core_->used_calls(); }
Result<PrewarmReport> Runtime::prewarm(std::span<const CallKey> calls) {
  return capture([&] {
    FloatMode mode;
    return gradloom::prewarm(*core_, calls);
  });
}
void Runtime::wait_for_background() const { core_->specialiser().wait(); }
void Runtime::clear_cache() { core_->cache().clear(); }
int Runtime::device() const { return core_->device(); }

Result<std::monostate> Runtime::synchronize(void* stream) {
  return capture([&]() -> std::monostate {
    core_->synchronize(stream);
    return {};
  });
}
Result<Tensor> Runtime::to_device(const Tensor& tensor, void* stream) {
  return capture([&] { return core_->copy_to(core_->device(), tensor, stream); });
}
Result<Tensor> Runtime::to_host(const Tensor& tensor, void* stream) {
  return capture([&] { return core_->copy_to(-1, tensor, stream); });
}

int Runtime::threads() const { return core_->threads().count(); }
std::string Runtime::target_name() const { return core_->target_name(); }
const ir::Target& Runtime::target() const { return core_->target(); }

}  // namespace gradloom
