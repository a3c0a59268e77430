#include "gradloom/runtime.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <mutex>

#include "gradloom/schedule.h"
#include "gradloom/text.h"
#include "ir/differentiate/zero_gradients.h"
#include "runtime/call.h"
#include "runtime/diagnose/log.h"
#include "runtime/executable.h"
#include "runtime/prepared.h"
#include "runtime/prewarm.h"
#include "runtime/tune_call.h"
#include "support/entry.h"
#include "support/lasting.h"
#include "support/lines.h"
#include "support/stack.h"

namespace gradloom {
namespace {

const Op& op_named(std::string_view name) {
  if (const Op* op = find_op(name)) return *op;
  std::string known;
  for (const Op* op : all_ops()) known += (known.empty() ? "" : ", ") + op->schema().name;
  throw Error(ErrorCode::unsupported, fmt::format("there is no op \"{}\"; there are: {}", name, known));
}

// Writes to `given`, or, if that is null, to new outputs, which are returned.
[[gnu::noinline]] std::vector<Tensor> run_op_here(Core& core, const Op& op, std::span<const Tensor> inputs,
                                                  const std::span<Tensor>* given, const Attributes& attributes,
                                                  const RunOptions& options) {
  const Entry entered;
  const OpSchema& schema = op.schema();
  if (!given) refuse_accumulate(schema, options);
  const int device = core.device_for(schema);
  const InputArguments in = input_arguments(schema, inputs);
  OutputArguments out = given ? output_arguments(schema, *given) : OutputArguments();
  check_devices(schema, device, span_of(in), span_of(out));
  const Operands operands(schema, span_of(in));
  const uint32_t wanted = given ? present_outputs(span_of(out)) : options.outputs_wanted & schema_outputs(schema);
  const Request request = operands.request(attributes, wanted, options.accumulate, core.level(options));
  Plan plan = op.check(request);
  std::vector<Tensor> made;
  if (!given) {
    made = make_outputs(core, device, schema, plan, wanted, options.launch);
    out = output_arguments(schema, made);
  }
  if (given || options.launch.allocate) check_outputs(schema, plan, span_of(in), span_of(out));
  const uint32_t in_place = given ? write_in_place(plan, span_of(out)) : 0;
  launch_checked(
      core, {op, plan, device, span_of(in), span_of(out), options.launch, in_place, options.accumulate},
      [&](int64_t alignment) {
        const Strategy& strategy = choose_strategy(op, plan, options, core.target());
        KeptKernels kept;
        return core.kernel_by_policy({op, plan, strategy, options, wanted, alignment, &request, in_place}, kept);
      },
      [&](const auto& explained) { throw explained(request); },
      [&](size_t o, const Dims& found) {
        Tensor& output = given ? (*given)[o] : made[o];
        output = of_size(output, found);
      });
  if (!given && options.launch.allocate) give_found(schema, span_of(in), made, options.launch);
  return made;
}

// The stack is looked at before the call's own frame is on it.
std::vector<Tensor> run_op(Core& core, const Op& op, std::span<const Tensor> inputs, const std::span<Tensor>* given,
                           const Attributes& attributes, const RunOptions& options) {
  require_stack(call_stack_bytes, op.schema().name);
  return run_op_here(core, op, inputs, given, attributes, options);
}

// Whatever is wrong is with that argument.
template <class Body>
auto naming(const char* argument, Body&& body) {
  try {
    return body();
  } catch (const Error& error) {
    const std::string named = std::string(argument) + ": ";
    if (std::string_view(error.what()).starts_with(named)) throw;
    throw Error(error.code(), named + error.what());
  }
}

struct SharedRuntime {
  Mutex mutex;
  std::weak_ptr<Runtime> runtime;
};
constinit Lasting<SharedRuntime> the_shared_runtime;

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
  in_range("tuning", static_cast<int>(options.tuning), 0, static_cast<int>(Tuning::background));
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

const TuneOptions& checked(const TuneOptions& how) {
  if (how.candidates < 1 || !(how.seconds > 0))
    throw Error(ErrorCode::invalid_argument,
                fmt::format("TuneOptions: candidates is {} and seconds is {}, expected at least 1 and more than 0",
                            how.candidates, how.seconds));
  return how;
}

}  // namespace

Runtime::Runtime(RuntimeOptions options) {
  const Entry entered;
  (void)out_of_memory();  // made while there is memory
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

Result<PreparedOp> Runtime::prepare(std::string_view op, const Attributes& attributes, const RunOptions& options) {
  return capture([&] { return prepare(op_named(op), attributes, options).value(); });
}

Result<PreparedOp> Runtime::prepare(const Op& op, const Attributes& attributes, const RunOptions& options) {
  return capture([&] {
    const Entry entered;
    PreparedOp prepared;
    prepared.state_ = std::make_shared<PreparedOp::State>(core_, op, attributes, options);
    return prepared;
  });
}

Result<std::vector<OutputInfo>> Runtime::infer_outputs(const Op& op, std::span<const Operand> inputs,
                                                       const Attributes& attributes, const RunOptions& options) const {
  return capture([&] {
    const Entry entered;
    return gradloom::infer_outputs({*core_, op, attributes, options}, inputs);
  });
}

Result<std::vector<OutputInfo>> Runtime::infer_outputs(const Op& op, std::span<const Tensor> inputs,
                                                       const Attributes& attributes, const RunOptions& options) const {
  return capture([&] { return infer_outputs(op, Operands(op.schema(), inputs).span(), attributes, options).value(); });
}

Result<std::vector<OutputInfo>> Runtime::infer_outputs(std::string_view op, std::span<const Operand> inputs,
                                                       const Attributes& attributes, const RunOptions& options) const {
  return capture([&] { return infer_outputs(op_named(op), inputs, attributes, options).value(); });
}

Result<std::vector<OutputInfo>> Runtime::infer_outputs(std::string_view op, std::span<const Tensor> inputs,
                                                       const Attributes& attributes, const RunOptions& options) const {
  return capture([&] { return infer_outputs(op_named(op), inputs, attributes, options).value(); });
}

Result<KernelExecutable> Runtime::compile(const ir::Kernel& kernel, const KernelOptions& options) {
  return capture([&] {
    const Entry entered;
    KernelExecutable executable;
    executable.state_ = std::make_shared<KernelExecutable::State>(core_, kernel, options);
    return executable;
  });
}

Result<KernelExecutable> Runtime::compile_text(std::string_view nest, std::string_view trace,
                                               const KernelOptions& options) {
  return capture([&] {
    const Entry entered;
    const ir::Kernel kernel = naming("nest", [&] { return ir::parse(nest); });
    const std::vector<std::string> steps = lines_of(trace);
    if (steps.empty()) return compile(kernel, options).value();
    ir::Schedule schedule(kernel);
    naming("trace", [&] { schedule.replay(steps); });
    return compile(schedule.kernel(), {.default_schedule = false}).value();
  });
}

Result<KernelExecutable> Runtime::gradient(const ir::Kernel& forward, const ir::Derivation& how,
                                           const KernelOptions& options) {
  return capture([&] {
    const Entry entered;
    const ir::Kernel gradient = ir::differentiate(forward, how);
    for (const std::string& line : ir::zero_gradient_warnings(forward, gradient)) log(LogLevel::warn, "{}", line);
    return compile(gradient, options).value();
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
Result<TuneReport> Runtime::tune(std::string_view op, std::span<const Tensor> inputs, const Attributes& attributes,
                                 const RunOptions& options, const TuneOptions& how) {
  return capture([&] {
    const Entry entered;
    return tune(op_named(op), inputs, attributes, options, how).value();
  });
}
Result<TuneReport> Runtime::tune(const Op& op, std::span<const Tensor> inputs, const Attributes& attributes,
                                 const RunOptions& options, const TuneOptions& how) {
  return capture([&] {
    const Entry entered;
    return gradloom::tune(*core_, op, inputs, attributes, options, checked(how));
  });
}
Result<TuneReport> Runtime::tune(const ir::Kernel& kernel, std::span<const Tensor> buffers,
                                 std::span<const int64_t> scalars, const TuneOptions& how) {
  return capture([&] {
    const Entry entered;
    core_->require_tunable(kernel.name);
    const KernelExecutable executable = compile(kernel).value();
    std::vector<int64_t> storage;
    const std::span<const int64_t> slots = scalar_slots(kernel, scalars, storage);
    executable.state_->check(buffers, slots);
    return gradloom::tune(*core_, kernel, buffers, slots, checked(how));
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

Result<std::shared_ptr<Runtime>> shared_runtime(const RuntimeOptions& options) {
  return capture([&] {
    SharedRuntime& shared = *the_shared_runtime;
    std::lock_guard lock(shared.mutex);
    std::shared_ptr<Runtime> runtime = shared.runtime.lock();
    if (!runtime) shared.runtime = runtime = std::make_shared<Runtime>(options);
    return runtime;
  });
}

int Runtime::threads() const { return core_->threads().count(); }
std::string Runtime::target_name() const { return core_->target_name(); }
const ir::Target& Runtime::target() const { return core_->target(); }

}  // namespace gradloom
