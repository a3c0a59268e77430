#include "runtime/build.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cstring>

#include "ir/analysis/verify.h"
#include "ir/passes/passes.h"
#include "ir/refusal.h"
#include "ir/scalar_math.h"
#include "ir/schedule/schedule.h"
#include "ir/schedule/schedule_gpu.h"

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

Operands::Operands(const OpSchema& schema, std::span<const Tensor> inputs) {
  if (inputs.size() > static_cast<size_t>(max_inputs)) {
    throw Error(ErrorCode::invalid_argument, fmt::format("{}: {} inputs given, it takes at most {}", schema.name,
                                                         inputs.size(), schema.inputs.size()));
  }
  operands_.resize(static_cast<int>(inputs.size()));
  for (int i = 0; i < operands_.size(); ++i) {
    const Tensor& tensor = inputs[i];
    if (!tensor.present()) continue;
    Operand& operand = operands_[i];
    operand.present = true;
    operand.dtype = tensor.dtype();
    operand.dims = tensor.dims();
    operand.strides = tensor.strides();
    if (static_cast<size_t>(i) >= schema.inputs.size() || !schema.inputs[i].shape_like || tensor.elements() == 0)
      continue;
    if (tensor.dense() && reinterpret_cast<uintptr_t>(tensor.data()) % size_of(tensor.dtype()) == 0) {
      operand.host = tensor.data();
    } else {
      copies_.push_back(dense_copy(tensor));
      operand.host = copies_.back().data();
      operand.strides = dense_strides(tensor.dims());
    }
  }
}

int64_t input_alignment(const ir::Target& target, int64_t output_alignment) {
  constexpr int64_t vector_bytes = 16;  // the most that a thread loads at once
  return target.gpu && output_alignment >= vector_bytes ? vector_bytes : 1;
}

BuiltKernel author_kernel(const Op& op, const Plan& plan, const std::string& strategy, const ir::Target& target,
                          bool any_shape, int64_t output_alignment, [[maybe_unused]] bool accumulate) {
  const auto start = std::chrono::steady_clock::now();
  KernelFrame frame(op.schema().name + "_" + strategy, plan, any_shape, output_alignment,
                    input_alignment(target, output_alignment));
  op.author(frame, strategy, target);
  BuiltKernel built;
  built.authored = frame.builder.build();
  built.sources = frame.take_sources();
#ifndef NDEBUG
  ir::verify(built.authored, ir::Stage::authored);
#endif
  if (built.authored.buffers.size() != static_cast<size_t>(plan.views.size()) ||
      built.authored.scalars.size() != built.sources.size()) {
    throw Error(ErrorCode::internal,
                fmt::format("{}: strategy {} wrote a kernel of {} buffers and {} scalars, the plan gives {} and {}",
                            op.schema().name, strategy, built.authored.buffers.size(), built.authored.scalars.size(),
                            plan.views.size(), built.sources.size()));
  }
  for (int v = 0; v < plan.views.size(); ++v) {
    const ir::Role role = built.authored.buffers[v]->role;
    const ir::Role expected = !plan.views[v].output ? ir::Role::in : accumulate ? ir::Role::inout : ir::Role::out;
    // An op may read back what it wrote (inout) without accumulating; it may never overwrite what it should add to.
    if (role != expected && !(role == ir::Role::inout && plan.views[v].output)) {
      throw Error(ErrorCode::internal, fmt::format("{}: strategy {} gives buffer {} the wrong role", op.schema().name,
                                                   strategy, built.authored.buffers[v]->name));
    }
  }
  built.ms = milliseconds_since(start);
  return built;
}

namespace {

template <class Steps>
void schedule_and_lower(BuiltKernel& built, const ir::Target& target, Steps&& steps) {
  const auto start = std::chrono::steady_clock::now();
  ir::Schedule schedule(built.authored);
  steps(schedule);
  built.scheduled = schedule.kernel();
  built.trace = schedule.trace();
  built.lowered = ir::lower(built.scheduled, ir::lowering_for(target));
  built.ms += milliseconds_since(start);
}

}  // namespace

BuiltKernel build_kernel(const Op& op, const Plan& plan, const std::string& strategy, const ir::Target& target,
                         bool any_shape, int64_t output_alignment, bool accumulate) {
  BuiltKernel built = author_kernel(op, plan, strategy, target, any_shape, output_alignment, accumulate);
  schedule_and_lower(built, target, [&](ir::Schedule& s) { op.schedule(s, plan, strategy, target); });
  return built;
}

namespace {

// No op's decision: the nest as it is, or on a GPU what schedule_gpu makes of any nest.
BuiltKernel build_plain(const Op& op, const Plan& plan, const std::string& strategy, const ir::Target& target,
                        bool any_shape, int64_t output_alignment, bool accumulate) {
  BuiltKernel built = author_kernel(op, plan, strategy, target, any_shape, output_alignment, accumulate);
  schedule_and_lower(built, target, [&](ir::Schedule& s) {
    if (target.gpu) ir::schedule_gpu(s, target);
  });
  return built;
}

}  // namespace

ServingKernel build_serving(const Op& op, const Plan& plan, const std::string& strategy, const ir::Target& target,
                            bool any_shape, int64_t output_alignment, bool accumulate, const Finish& finish) {
  ServingKernel serving;
  const auto serves = [&](const auto& build, const std::string& name) {
    try {
      serving.built = build(op, plan, name, target, any_shape, output_alignment, accumulate);
      serving.strategy = name;
      if (finish) finish(serving.built, name);
      return true;
    } catch (const ir::Refusal& refusal) {
      serving.gave_way.push_back({name, refusal.what()});
      return false;
    }
  };
  if (serves(build_kernel, strategy)) return serving;
  const std::vector<std::string> offered = op.strategies(plan, target);
  const auto own = std::find(offered.begin(), offered.end(), strategy);
  if (own != offered.end() && !any_shape)
    for (auto next = own + 1; next != offered.end(); ++next)
      if (serves(build_kernel, *next)) return serving;
  const bool defined = std::find(offered.begin(), offered.end(), "direct") != offered.end();
  const std::string last = defined || offered.empty() ? "direct" : offered.back();
  serving.built = build_plain(op, plan, last, target, any_shape, output_alignment, accumulate);
  serving.strategy = last;
  serving.plain = true;
  if (finish) finish(serving.built, last);
  return serving;
}

std::string choose_strategy(const Op& op, const Plan& plan, const std::string& wanted, const ir::Target& target) {
  std::vector<std::string> names = op.strategies(plan, target);
  if (names.empty())
    throw Error(ErrorCode::internal, fmt::format("{}: no strategy serves this call", op.schema().name));
  if (wanted.empty()) return std::move(names.front());
  if (std::find(names.begin(), names.end(), wanted) == names.end()) {
    throw Error(ErrorCode::invalid_argument, fmt::format("{}: strategy \"{}\" does not serve this call; these do: {}",
                                                         op.schema().name, wanted, fmt::join(names, ", ")));
  }
  return wanted;
}

void fill_scalars(const Plan& plan, std::span<const ScalarSource> sources, int64_t* scalars) {
  for (size_t i = 0; i < sources.size(); ++i) {
    const ScalarSource& source = sources[i];
    switch (source.kind) {
      case ScalarSource::param:
        scalars[i] = plan.params[source.index];
        break;
      case ScalarSource::dim:
        scalars[i] = plan.views[source.view].dims[source.index];
        break;
      case ScalarSource::stride:
        scalars[i] = plan.views[source.view].strides[source.index];
        break;
    }
  }
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
