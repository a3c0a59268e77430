#pragma once
// A call that the op has checked and a strategy was chosen for: all that its kernel depends on. It is passed by
// reference from the check to the launch; everything it refers to outlives it.
#include "gradloom/op.h"
#include "gradloom/options.h"

namespace gradloom {

// The alignment classes of operands: outputs at cache lines (and on a GPU inputs at vectors of 16 bytes), or any
// address.
inline constexpr int64_t aligned_outputs = 64, any_outputs = 1;

// An upper bound of the scalars of any plan: its params, and each view's dims and strides.
inline constexpr int max_scalars = 2 * max_rank + max_views * 2 * max_rank;

struct PlannedCall {
  const Op& op;
  const Plan& plan;
  const Strategy& strategy;
  const RunOptions& options;
  uint32_t outputs_wanted = ~0u;
  int64_t output_alignment = any_outputs;
  const Request* request = nullptr;  // the checked request, to be recorded among the calls used
  uint32_t in_place = 0;             // outputs that are not dense, whose views have their strides

  const std::string& name() const { return op.schema().name; }
  bool any_shape() const { return options.any_shape && serves_any_shape(plan); }
  // The same call with another strategy, or with other options.
  PlannedCall with(const Strategy& other) const { return with(other, options); }
  PlannedCall with(const Strategy& other, const RunOptions& changed) const {
    return {op, plan, other, changed, outputs_wanted, output_alignment, request, in_place};
  }
  PlannedCall with(const Strategy& other, RunOptions&& changed) const = delete;
};

// The options that a handle or a background job keeps: not those of one launch.
inline RunOptions without_launch(RunOptions options) {
  options.launch = {};
  return options;
}

// The strategy that the options name, or the first that serves; throws Error(invalid_argument).
inline const Strategy& choose_strategy(const Op& op, const Plan& plan, const RunOptions& options,
                                       const ir::Target& target) {
  return choose_strategy(op, plan, options.strategy, target, options.any_shape && serves_any_shape(plan));
}

// The values of a kernel's scalars for one call.
void fill_scalars(const Plan& plan, std::span<const ScalarSource> sources, int64_t* scalars);

enum class KeyPart : uint8_t { op, strategy, options, dtypes, strides, attributes, dims, target, toolchain, build };

// Visits everything in a call that can affect its kernel's code, each field once and in a fixed order: the in-memory
// key encodes it as words, the disk key as text. A visitor has text(part, value); number(part, name, value, bits), a
// value of at most that many bits; list(part, values), whose length is among the preceding fields; operand(view).
template <class Visitor>
void visit_key(const PlannedCall& call, Visitor&& v) {
  const Plan& plan = call.plan;
  const bool any_shape = call.any_shape();
  v.text(KeyPart::op, call.name());
  v.text(KeyPart::strategy, call.strategy.name);
  v.number(KeyPart::options, "any_shape", any_shape, 1);
  v.number(KeyPart::options, "accumulate", call.options.accumulate, 1);
  v.number(KeyPart::options, "determinism", static_cast<uint64_t>(plan.determinism), 2);
  v.number(KeyPart::options, "output_alignment", static_cast<uint64_t>(call.output_alignment), 16);
  v.number(KeyPart::options, "outputs_wanted", call.outputs_wanted, 32);
  v.number(KeyPart::attributes, "words", static_cast<uint64_t>(plan.key.size()), 8);
  v.list(KeyPart::attributes, plan.key);
  v.number(KeyPart::dims, "views", static_cast<uint64_t>(plan.views.size()), 8);
  for (const View& view : plan.views) {
    const bool dense = is_dense(view.dims, view.strides);
    v.operand(view);
    v.number(KeyPart::dims, "rank", static_cast<uint64_t>(view.dims.size()), 8);
    v.number(KeyPart::strides, "dense", dense, 1);
    if (!any_shape) v.list(KeyPart::dims, view.dims);
    if (dense) continue;
    if (any_shape)
      v.number(KeyPart::strides, "class", static_cast<uint64_t>(stride_class(view)), 64);
    else
      v.list(KeyPart::strides, view.strides);
  }
}

}  // namespace gradloom
