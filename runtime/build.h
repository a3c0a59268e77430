#pragma once
// From a checked call to IR: the only code that authors, schedules and lowers. Used by the Runtime, the command-line
// tool and the tests.
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "gradloom/stmt.h"
#include "gradloom/target.h"
#include "gradloom/tensor.h"
#include "ir/passes/passes.h"
#include "runtime/argument.h"
#include "runtime/planned_call.h"

namespace gradloom {

// The operand descriptors of a call's tensors. The values of shape-like inputs are passed to the op: dense and aligned,
// copied if the tensor's are not.
class Operands {
 public:
  Operands(const OpSchema& schema, Arguments inputs);
  // Throws Error(invalid_argument) for more than max_inputs.
  Operands(const OpSchema& schema, std::span<const Tensor> inputs);
  Operands(const Operands&) = delete;
  Operands& operator=(const Operands&) = delete;
  std::span<const Operand> span() const { return {operands_.data(), static_cast<size_t>(operands_.size())}; }
  // Valid as long as this and the attributes are.
  Request request(const Attributes& attributes, uint32_t outputs_wanted = ~0u, bool accumulate = false,
                  Determinism determinism = Determinism::sequential) const {
    return {.inputs = span(),
            .attributes = attributes,
            .outputs_wanted = outputs_wanted,
            .accumulate = accumulate,
            .determinism = determinism};
  }

 private:
  InlineVector<Operand, max_inputs> operands_;
  std::vector<std::vector<int64_t>> copies_;  // 8-byte aligned
};

struct BuiltKernel {
  ir::Kernel authored, scheduled, lowered;
  std::vector<ScalarSource> sources;  // where each of the kernel's scalars comes from
  std::vector<std::string> trace;     // of the schedule
  double ms = 0;
  ir::PassTimes pass_ms;  // its lowering passes
};

// Throws whatever the op, the schedule and the passes throw.
BuiltKernel build_kernel(const PlannedCall& call, const ir::Target& target);
// The same with the steps of a trace instead of the strategy's schedule, which may be refused. `check` gets the
// authored nest first, and may throw.
BuiltKernel replay_kernel(const PlannedCall& call, const ir::Target& target, const std::vector<std::string>& trace,
                          const std::function<void(const ir::Kernel& authored)>& check = {});
// Only the authored nest and its sources.
BuiltKernel author_kernel(const PlannedCall& call, const ir::Target& target);
// The alignment of every input's first element, in bytes: on a GPU, where outputs are aligned, inputs are as well.
int64_t input_alignment(const ir::Target& target, int64_t output_alignment);

// A strategy that was skipped: its schedule or its lowering was refused.
struct GaveWay {
  std::string strategy, why;  // one line
};
struct ServingKernel {
  BuiltKernel built;
  const Strategy* strategy = nullptr;  // the one that serves the call
  bool plain = false;                  // without its schedule
  std::vector<GaveWay> gave_way;
};
// The kernel of the call's strategy. When that is refused (with the exception types of gradloom/refusal.h), falls back
// to the next one that serves the call, and finally to the definition with only the default schedule. An any-shape
// kernel falls back to the definition directly: which other strategies serve depends on the shape. `finish`, if given,
// may refuse as well: it emits code. Any other error is thrown.
using Finish = std::function<void(const BuiltKernel& built, const Strategy& strategy)>;
ServingKernel build_serving(const PlannedCall& call, const ir::Target& target, const Finish& finish = {});

// The determinism level of a call that specifies none.
inline Determinism own_determinism(const ir::Target& target) {
  return target.gpu ? Determinism::run_to_run : Determinism::sequential;
}

// Element `index` (row-major) of an integer tensor. Throws Error(internal) beyond its elements.
int64_t integer_element(const Tensor& tensor, int64_t index);

}  // namespace gradloom
