#include "runtime/build.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>

#include "gradloom/refusal.h"
#include "gradloom/schedule.h"
#include "ir/analysis/verify.h"
#include "ir/passes/passes.h"
#include "ir/scalar_math.h"
#include "ir/schedule/schedule_default.h"

namespace gradloom {
namespace {

double milliseconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

const char* element_address(const Tensor& tensor, int64_t index) {
  int64_t offset = 0;
  for (int axis = tensor.dims().size() - 1; axis >= 0; --axis) {
    offset += index % tensor.dims()[axis] * tensor.strides()[axis];
    index /= tensor.dims()[axis];
  }
  return static_cast<const char*>(tensor.data()) + offset * size_of(tensor.dtype());
}

std::vector<int64_t> dense_copy(const Tensor& tensor) {
  const int width = size_of(tensor.dtype());
  std::vector<int64_t> copy((tensor.elements() * width + 7) / 8);
  for (int64_t i = 0; i < tensor.elements(); ++i) {
    std::memcpy(reinterpret_cast<char*>(copy.data()) + i * width, element_address(tensor, i), width);
  }
  return copy;
}

}  // namespace

Operands::Operands(const OpSchema& schema, std::span<const Tensor> inputs)
    : Operands(schema, span_of(input_arguments(schema, inputs))) {}

Operands::Operands(const OpSchema& schema, Arguments inputs) {
  operands_.resize(static_cast<int>(inputs.size()));
  for (int i = 0; i < operands_.size(); ++i) {
    const Argument& input = inputs[i];
    if (!input.present) continue;
    Operand& operand = operands_[i];
    operand.present = true;
    operand.dtype = input.dtype;
    operand.dims = dims_of(input);
    operand.strides = strides_of(input);
    if (static_cast<size_t>(i) >= schema.inputs.size() || !schema.inputs[i].shape_like || input.elements() == 0)
      continue;
    if (!input.strides && reinterpret_cast<uintptr_t>(input.data) % size_of(input.dtype) == 0) {
      operand.host = input.data;
    } else {
      copies_.push_back(dense_copy(tensor_of(input)));
      operand.host = copies_.back().data();
      operand.strides = dense_strides(operand.dims);
    }
  }
}

int64_t input_alignment(const ir::Target& target, int64_t output_alignment) {
  constexpr int64_t vector_bytes = 16;  // the widest load of a thread
  return target.gpu && output_alignment >= vector_bytes ? vector_bytes : 1;
}

namespace {

// Offsets of the first and of the last element, relative to element [0, ..., 0].
struct Span {
  __int128 low = 0, high = 0;
  Span(const Dims& dims, const Dims& strides) {
    // What is further than 2^64 is beyond every operand.
    for (int d = 0; d < dims.size() && (high - low) >> 64 == 0; ++d) {
      const __int128 far = static_cast<__int128>(dims[d] - 1) * strides[d];
      (far < 0 ? low : high) += far;
    }
  }
};

// A view lies within its operand, whatever an op's plan says.
void check_views(const PlannedCall& call) {
  const Plan& plan = call.plan;
  for (int v = 0; v < plan.views.size(); ++v) {
    const View& view = plan.views[v];
    if (!view.output && !call.request) continue;  // a prewarmed call: its operands are unknown
    if (view.output && call.in_place >> view.index & 1) continue;
    const auto empty = [](const Dims& dims) { return std::count(dims.begin(), dims.end(), 0) > 0; };
    if (empty(view.dims)) continue;
    const Dims& dims = view.output ? plan.outputs[view.index].dims : call.request->input(view.index).dims;
    const Span operand(dims, view.output ? dense_strides(dims) : call.request->input(view.index).strides),
        seen(view.dims, view.strides);
    if (empty(dims) || seen.low < operand.low || seen.high > operand.high)
      throw Error(ErrorCode::internal, fmt::format("{}: view {} of its plan reaches beyond {} {}", call.name(), v,
                                                   view.output ? "output" : "input", view.index));
  }
}

// Buffers and scalars must be those of the plan.
void check_authored(const PlannedCall& call, const BuiltKernel& built) {
  check_views(call);
  const Plan& plan = call.plan;
#ifndef NDEBUG
  ir::verify(built.authored, ir::Stage::authored);
#endif
  if (built.authored.buffers.size() != static_cast<size_t>(plan.views.size()) ||
      built.authored.scalars.size() != built.sources.size()) {
    throw Error(ErrorCode::internal,
                fmt::format("{}: strategy {} wrote a kernel of {} buffers and {} scalars, the plan gives {} and {}",
                            call.name(), call.strategy.name, built.authored.buffers.size(),
                            built.authored.scalars.size(), plan.views.size(), built.sources.size()));
  }
  for (int v = 0; v < plan.views.size(); ++v) {
    const ir::Role role = built.authored.buffers[v]->role;
    const ir::Role expected = !plan.views[v].output     ? ir::Role::in
                              : call.options.accumulate ? ir::Role::inout
                                                        : ir::Role::out;
    // An op may read back what it wrote (inout) without accumulating; it must never overwrite outputs it accumulates
    // into.
    if (role != expected && !(role == ir::Role::inout && plan.views[v].output)) {
      throw Error(ErrorCode::internal, fmt::format("{}: strategy {} gives buffer {} the wrong role", call.name(),
                                                   call.strategy.name, built.authored.buffers[v]->name));
    }
  }
}

// `rewrite` gets the authored nest and the strategy's scheduling function, and gives the scheduled nest.
template <class Rewrite>
BuiltKernel build(const PlannedCall& call, const ir::Target& target, bool lowered, Rewrite&& rewrite) {
  const auto start = std::chrono::steady_clock::now();
  KernelFrame frame(call.name() + "_" + call.strategy.name, call.plan, call.any_shape(), call.output_alignment,
                    input_alignment(target, call.output_alignment));
  const ScheduleNest own = call.strategy.author(frame, target);
  BuiltKernel built;
  built.authored = frame.builder.build();
  built.sources = frame.take_sources();
  check_authored(call, built);
  if (lowered) {
    ir::Scheduled scheduled = rewrite(built.authored, own);
    built.scheduled = std::move(scheduled.kernel);
    built.trace = std::move(scheduled.trace);
    ir::LowerOptions lowering = ir::lowering_for(target);
    lowering.times = &built.pass_ms;
    built.lowered = ir::lower(built.scheduled, lowering);
  }
  built.ms = milliseconds_since(start);
  return built;
}

ir::Scheduled by_steps(const PlannedCall& call, const ir::Kernel& authored, const ScheduleNest& steps) {
  ir::Schedule schedule(authored, call.strategy.level);
  steps(schedule);
  return {schedule.kernel(), schedule.trace()};
}

BuiltKernel build_plain(const PlannedCall& call, const ir::Target& target) {
  return build(call, target, true, [&](const ir::Kernel& authored, const ScheduleNest&) {
    return ir::schedule_default(authored, target, call.strategy.level);
  });
}

}  // namespace

BuiltKernel author_kernel(const PlannedCall& call, const ir::Target& target) {
  return build(call, target, false, [](const ir::Kernel&, const ScheduleNest&) { return ir::Scheduled{}; });
}

BuiltKernel build_kernel(const PlannedCall& call, const ir::Target& target) {
  return build(call, target, true, [&](const ir::Kernel& authored, const ScheduleNest& own) {
    return own ? by_steps(call, authored, own) : ir::schedule_default(authored, target, call.strategy.level);
  });
}

BuiltKernel replay_kernel(const PlannedCall& call, const ir::Target& target, const std::vector<std::string>& trace,
                          const std::function<void(const ir::Kernel& authored)>& check) {
  return build(call, target, true, [&](const ir::Kernel& authored, const ScheduleNest&) {
    if (check) check(authored);
    return by_steps(call, authored, [&](ir::Schedule& s) { s.replay(trace); });
  });
}

ServingKernel build_serving(const PlannedCall& call, const ir::Target& target, const Finish& finish) {
  ServingKernel serving;
  const auto use = [&](BuiltKernel built, const Strategy& strategy) {
    serving.built = std::move(built);
    serving.strategy = &strategy;
    if (finish) finish(serving.built, strategy);
  };
  const auto serves = [&](const Strategy& strategy) {
    try {
      use(build_kernel(call.with(strategy), target), strategy);
      return true;
    } catch (const ir::Refusal& refusal) {
      serving.gave_way.push_back({strategy.name, refusal.what()});
      return false;
    }
  };
  if (serves(call.strategy)) return serving;
  if (!call.any_shape()) {
    const std::vector<const Strategy*> offered = serving_strategies(call.op, call.plan, target);
    const auto own = std::find(offered.begin(), offered.end(), &call.strategy);
    for (auto next = own; next != offered.end(); ++next)
      if (next != own && serves(**next)) return serving;
  }
  const Strategy& definition = call.op.strategies().back();
  serving.plain = true;
  use(build_plain(call.with(definition), target), definition);
  return serving;
}

int64_t integer_element(const Tensor& tensor, int64_t index) {
  if (index < 0 || index >= tensor.elements()) {
    throw Error(ErrorCode::internal,
                fmt::format("element {} of a tensor of {} was asked for", index, tensor.elements()));
  }
  uint64_t bits = 0;
  std::memcpy(&bits, element_address(tensor, index), size_of(tensor.dtype()));
  return ir::int_from_bits(tensor.dtype(), bits);
}

}  // namespace gradloom
