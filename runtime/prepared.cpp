#include "runtime/prepared.h"

#include <fmt/format.h>

#include "runtime/call.h"
#include "support/entry.h"
#include "support/stack.h"

namespace gradloom {
namespace {

constexpr size_t most_calls = 4;  // known in one place

// Threads start their search for a place at different ones.
size_t first_place() {
  static std::atomic<size_t> threads{0};
  thread_local const size_t mine = threads.fetch_add(1, std::memory_order_relaxed);
  return mine;
}

// As tensors have been checked already; those of a foreign struct are here.
void check_tensors(const OpSchema& schema, Arguments inputs) {
  for (size_t i = 0; i < inputs.size(); ++i) {
    try {
      tensor_of(inputs[i]);
    } catch (const Error& error) {
      throw Error(error.code(), fmt::format("{}: {}: {}", schema.name,
                                            i < schema.inputs.size() ? describe_input(schema, static_cast<int>(i))
                                                                     : fmt::format("input {}", i),
                                            error.what()));
    }
  }
}

}  // namespace

std::vector<OutputInfo> infer_outputs(const CallSettings& call, std::span<const Operand> inputs) {
  const OpSchema& schema = call.op.schema();
  const uint32_t wanted = call.options.outputs_wanted & schema_outputs(schema);
  const Plan plan = call.op.check({.inputs = inputs,
                                   .attributes = call.attributes,
                                   .outputs_wanted = wanted,
                                   .accumulate = call.options.accumulate,
                                   .determinism = call.core.level(call.options)});
  std::vector<OutputInfo> outputs(plan.outputs.begin(), plan.outputs.begin() + static_cast<int>(schema.outputs.size()));
  for (size_t o = 0; o < outputs.size(); ++o) outputs[o].wanted = outputs[o].wanted && (wanted >> o & 1);
  return outputs;
}

PreparedOp::State& state_of(const PreparedOp& prepared) {
  if (!prepared.state_)
    throw Error(ErrorCode::invalid_argument, "an empty PreparedOp was called: it comes from Runtime::prepare");
  return *prepared.state_;
}

class PreparedOp::State::Taken {
 public:
  explicit Taken(std::array<Place, 16>& places) {
    for (size_t i = 0; i < places.size(); ++i) {
      Place& place = places[(first_place() + i) % places.size()];
      if (place.taken.load(std::memory_order_relaxed) || place.taken.exchange(true, std::memory_order_acquire))
        continue;
      place_ = &place;
      return;
    }
  }
  ~Taken() {
    if (place_ != &own_) place_->taken.store(false, std::memory_order_release);
  }
  Taken(const Taken&) = delete;
  Taken& operator=(const Taken&) = delete;
  Place& operator*() { return *place_; }

 private:
  Place own_;  // when all others are taken
  Place* place_ = &own_;
};

PreparedOp::State::State(std::shared_ptr<Core> core_in, const Op& op_in, const Attributes& attributes_in,
                         const RunOptions& options_in)
    : core(std::move(core_in)), op(op_in), attributes(attributes_in), options(without_launch(options_in)) {
  op.check_attributes(attributes);
  if (!options.strategy.empty()) find_strategy(op, options.strategy);
}

PreparedOp::State::Served& PreparedOp::State::served(Place& place, Arguments inputs, Arguments outputs,
                                                     uint32_t wanted) {
  for (const auto& call : place.calls)
    if (call->outputs_wanted == wanted && call->same(inputs) && call->same_strides(outputs)) {
      check_outputs(op.schema(), call->plan, inputs, outputs);
      return *call;
    }
  check_tensors(op.schema(), inputs);
  auto made = std::make_unique<Served>(settings(), inputs, wanted);
  check_outputs(op.schema(), made->plan, inputs, outputs);
  made->write_in_place(outputs);
  if (place.calls.size() < most_calls) return *place.calls.emplace_back(std::move(made));
  return *(place.calls[place.next++ % most_calls] = std::move(made));
}

void PreparedOp::State::launch(Served& call, int device, Arguments inputs, Arguments outputs,
                               const LaunchOptions& launch, const Found& found) {
  const auto with_request = [&](const auto& use) {
    const Operands operands(op.schema(), inputs);
    return use(operands.request(attributes, call.outputs_wanted, options.accumulate, core->level(options)));
  };
  launch_checked(
      *core, {op, call.plan, device, inputs, outputs, launch, call.in_place, options.accumulate},
      [&](int64_t alignment) {
        KeptKernels& kept = call.kept[alignment == aligned_outputs];
        if (!call.strategy) call.strategy = &choose_strategy(op, call.plan, options, core->target());
        PlannedCall planned{op,        call.plan, *call.strategy, options, call.outputs_wanted,
                            alignment, nullptr,   call.in_place};
        if (KernelHandle entry = core->kept_kernel(planned, kept)) return entry;
        return with_request([&](const Request& request) {
          planned.request = &request;
          return core->kernel_by_policy(planned, kept);
        });
      },
      [&](const auto& explained) { with_request([&](const Request& request) { throw explained(request); }); }, found);
}

void PreparedOp::State::run_into(Arguments inputs, Arguments outputs, const LaunchOptions& how, const Found& found) {
  require_stack(call_stack_bytes, op.schema().name);
  const int device = core->device_for(op.schema());
  check_devices(op.schema(), device, inputs, outputs);
  Taken place(places_);
  Served& call = served(*place, inputs, outputs, present_outputs(outputs));
  launch(call, device, inputs, outputs, how, found);
}

std::vector<Tensor> PreparedOp::State::run(Arguments inputs, const LaunchOptions& how) {
  const OpSchema& schema = op.schema();
  require_stack(call_stack_bytes, schema.name);
  refuse_accumulate(schema, options);
  const int device = core->device_for(schema);
  check_devices(schema, device, inputs, {});
  Taken place(places_);
  Served& call = served(*place, inputs, {}, options.outputs_wanted & schema_outputs(schema));
  std::vector<Tensor> made = make_outputs(*core, device, schema, call.plan, call.outputs_wanted, how);
  const OutputArguments outputs = output_arguments(schema, made);
  if (how.allocate) check_outputs(schema, call.plan, inputs, span_of(outputs));
  launch(call, device, inputs, span_of(outputs), how,
         [&](size_t o, const Dims& found) { made[o] = of_size(made[o], found); });
  if (how.allocate) give_found(schema, inputs, made, how);
  return made;
}

Result<std::vector<Tensor>> PreparedOp::run(std::span<const Tensor> inputs, const LaunchOptions& launch) const {
  return capture([&] {
    const Entry entered;
    State& state = state_of(*this);
    return state.run(span_of(input_arguments(state.op.schema(), inputs)), launch);
  });
}

Result<std::monostate> PreparedOp::run_into(std::span<const Tensor> inputs, std::span<Tensor> outputs,
                                            const LaunchOptions& launch) const {
  return capture([&]() -> std::monostate {
    const Entry entered;
    State& state = state_of(*this);
    const OpSchema& schema = state.op.schema();
    state.run_into(span_of(input_arguments(schema, inputs)), span_of(output_arguments(schema, outputs)), launch,
                   [&](size_t o, const Dims& found) { outputs[o] = of_size(outputs[o], found); });
    return {};
  });
}

Result<std::vector<OutputInfo>> PreparedOp::infer_outputs(std::span<const Operand> inputs) const {
  return capture([&] {
    const Entry entered;
    return state_of(*this).infer(inputs);
  });
}

Result<std::vector<OutputInfo>> PreparedOp::infer_outputs(std::span<const Tensor> inputs) const {
  return capture([&] {
    const Entry entered;
    State& state = state_of(*this);
    return state.infer(Operands(state.op.schema(), inputs).span());
  });
}

std::vector<OutputInfo> PreparedOp::State::infer(std::span<const Operand> inputs) const {
  return gradloom::infer_outputs(settings(), inputs);
}

}  // namespace gradloom
