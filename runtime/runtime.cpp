#include "gradloom/runtime.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "runtime/call.h"
#include "runtime/executable.h"
#include "runtime/prewarm.h"
#include "support/entry.h"
#include "support/stack.h"

namespace gradloom {
namespace {

const Op& op_named(std::string_view name) {
  if (const Op* op = find_op(name)) return *op;
  std::string known;
  for (const Op* op : all_ops()) known += (known.empty() ? "" : ", ") + op->schema().name;
  throw Error(ErrorCode::unsupported, fmt::format("there is no op \"{}\"; there are: {}", name, known));
}

// A mask of the schema's outputs.
uint32_t schema_outputs(const OpSchema& schema) {
  return static_cast<uint32_t>((uint64_t{1} << schema.outputs.size()) - 1);
}

// Writes to `given`, or, if that is null, to new outputs, which are returned.
[[gnu::noinline]] std::vector<Tensor> run_op_here(Core& core, const Op& op, std::span<const Tensor> inputs,
                                                  const std::span<Tensor>* given, const Attributes& attributes,
                                                  const RunOptions& options) {
  const Entry entered;
  const OpSchema& schema = op.schema();
  if (!given && options.accumulate)
    throw Error(ErrorCode::invalid_argument,
                fmt::format("{}: accumulate adds into outputs that the caller gives; use run_into", schema.name));
  const int device = core.device_for(schema);
  check_devices(schema, device, inputs, given ? *given : std::span<Tensor>());
  const Operands operands(schema, inputs);
  const uint32_t wanted = given ? present_outputs(schema, *given) : options.outputs_wanted & schema_outputs(schema);
  const Request request = operands.request(attributes, wanted, options.accumulate, core.level(options));
  const Plan plan = op.check(request);
  std::vector<Tensor> made(given ? 0 : schema.outputs.size());
  for (int o = 0; o < static_cast<int>(made.size()); ++o) {
    const OutputInfo& info = plan.outputs[o];
    if (info.wanted && (wanted >> o & 1)) made[o] = core.allocate(device, info.dtype, info.dims, options.launch);
  }
  const std::span<Tensor> outputs = given ? *given : std::span<Tensor>(made);
  if (given) check_outputs(schema, plan, inputs, outputs);
  launch_checked(
      core, {op, plan, device, inputs, outputs, outputs, options.launch},
      [&](int64_t alignment) {
        const Strategy& strategy = choose_strategy(op, plan, options, core.target());
        return core.kernel_by_policy({op, plan, strategy, options, wanted, alignment, &request});
      },
      [&](const auto& explained) { throw explained(request); });
  return made;
}

// The stack is looked at before the call's own frame is on it.
std::vector<Tensor> run_op(Core& core, const Op& op, std::span<const Tensor> inputs, const std::span<Tensor>* given,
                           const Attributes& attributes, const RunOptions& options) {
  require_stack(call_stack_bytes, op.schema().name);
  return run_op_here(core, op, inputs, given, attributes, options);
}

RuntimeOptions checked(RuntimeOptions options) {
  const auto in_range = [](const char* name, int64_t value, int64_t least,
                           int64_t most = std::numeric_limits<int64_t>::max()) {
    if (value >= least && value <= most) return;
    const std::string range = most == std::numeric_limits<int64_t>::max() ? fmt::format("at least {}", least)
                                                                          : fmt::format("{} to {}", least, most);
    throw Error(ErrorCode::invalid_argument, fmt::format("RuntimeOptions: {} is {}, expected {}", name, value, range));
  };
  in_range("target", static_cast<int>(options.target), 0, static_cast<int>(TargetKind::cuda_host));
  in_range("policy", static_cast<int>(options.policy), 0, static_cast<int>(Policy::generic_first));
  in_range("threads", options.threads, 0, 1 << 16);
  in_range("cache_bytes", options.cache_bytes, 0);
  in_range("recycle_bytes", options.recycle_bytes, 0);
  in_range("disk_cache_bytes", options.disk_cache_bytes, 0);
  in_range("device", options.device, 0);
  in_range("specialise_after", options.specialise_after, 1);
  in_range("specialisations", options.specialisations, 0);
  in_range("compile_threads", options.compile_threads, 1, 1 << 10);
  return options;
}

}  // namespace

Runtime::Runtime(RuntimeOptions options) {
  const Entry entered;
  // The last handle may be destroyed by any thread.
  core_ = std::shared_ptr<Core>(new Core(checked(std::move(options))), [](const Core* core) {
    const Entry ended;
    delete core;
  });
}
Runtime::~Runtime() {
  const Entry entered;
  core_.reset();
}

Result<std::vector<Tensor>> Runtime::run(std::string_view op, std::span<const Tensor> inputs,
                                         const Attributes& attributes, const RunOptions& options) {
  return capture([&] { return run_op(*core_, op_named(op), inputs, nullptr, attributes, options); });
}

Result<std::vector<Tensor>> Runtime::run(const Op& op, std::span<const Tensor> inputs, const Attributes& attributes,
                                         const RunOptions& options) {
  return capture([&] { return run_op(*core_, op, inputs, nullptr, attributes, options); });
}

Result<std::monostate> Runtime::run_into(std::string_view op, std::span<const Tensor> inputs, std::span<Tensor> outputs,
                                         const Attributes& attributes, const RunOptions& options) {
  return capture([&] {
    run_op(*core_, op_named(op), inputs, &outputs, attributes, options);
    return std::monostate();
  });
}

Result<std::monostate> Runtime::run_into(const Op& op, std::span<const Tensor> inputs, std::span<Tensor> outputs,
                                         const Attributes& attributes, const RunOptions& options) {
  return capture([&] {
    run_op(*core_, op, inputs, &outputs, attributes, options);
    return std::monostate();
  });
}

Result<Executable> Runtime::compile(std::string_view op, std::span<const Tensor> inputs, const Attributes& attributes,
                                    const RunOptions& options) {
  return capture([&] { return compile(op_named(op), inputs, attributes, options).value(); });
}

Result<Executable> Runtime::compile(const Op& op, std::span<const Tensor> inputs, const Attributes& attributes,
                                    const RunOptions& options) {
  return capture([&] {
    const Entry entered;
    Executable executable;
    executable.state_ = std::make_shared<Executable::State>(core_, op, inputs, attributes, options,
                                                            options.outputs_wanted & schema_outputs(op.schema()));
    return executable;
  });
}

Result<KernelExecutable> Runtime::compile(const ir::Kernel& kernel, const KernelOptions& options) {
  return capture([&] {
    const Entry entered;
    KernelExecutable executable;
    executable.state_ = std::make_shared<KernelExecutable::State>(core_, kernel, options);
    return executable;
  });
}

// Floating-point counters and growing hash tables raise the inexact exception, which a host may trap.
const KernelReport& Runtime::last_report() const {
  const Entry entered;
  return core_->last_report();
}
Stats Runtime::stats() const {
  const Entry entered;
  return core_->stats();
}
std::vector<CallKey> Runtime::used_calls() const {
  const Entry entered;
  return core_->used_calls();
}
Result<PrewarmReport> Runtime::prewarm(std::span<const CallKey> calls) {
  return capture([&] {
    const Entry entered;
    return gradloom::prewarm(*core_, calls);
  });
}
void Runtime::wait_for_background() const {
  const Entry entered;
  core_->specialiser().wait();
}
void Runtime::clear_cache() {
  const Entry entered;
  core_->cache().clear();
}
int Runtime::device() const { return core_->device(); }

Result<std::monostate> Runtime::synchronize(void* stream) {
  return capture([&]() -> std::monostate {
    const Entry entered;
    core_->synchronize(stream);
    return {};
  });
}
Result<Tensor> Runtime::to_device(const Tensor& tensor, void* stream) {
  return capture([&] {
    const Entry entered;
    return core_->copy_to(core_->device(), tensor, stream);
  });
}
Result<Tensor> Runtime::to_host(const Tensor& tensor, void* stream) {
  return capture([&] {
    const Entry entered;
    return core_->copy_to(-1, tensor, stream);
  });
}

int Runtime::threads() const { return core_->threads().count(); }
std::string Runtime::target_name() const { return core_->target_name(); }
const ir::Target& Runtime::target() const { return core_->target(); }

}  // namespace gradloom
