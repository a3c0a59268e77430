#pragma once
// The common path of every call once its arguments are checked, whether it allocates its outputs, is given them or goes
// through a handle.
#include <optional>
#include <span>

#include "codegen/abi.h"
#include "runtime/core.h"
#include "runtime/outputs.h"
#include "runtime/strided_outputs.h"

namespace gradloom {

// Fills the scalars and launches; returns the smallest bad position.
int64_t launch_plan(const Core& core, const KernelEntry& entry, const Plan& plan, void* const* buffers,
                    const LaunchOptions& options = {});

// The op's error for a failed Check. Inputs in device memory are read back.
Error explain(const Core& core, const Op& op, const Request& request, const Plan& plan, int64_t bad_position,
              Arguments inputs);

struct CheckedCall {
  const Op& op;
  const Plan& plan;
  int device;  // where the tensors are
  Arguments inputs, outputs;
  const LaunchOptions& launch;
  uint32_t in_place = 0;  // outputs that are not dense, whose views have their strides
  bool accumulate = false;
};

// Allocates memory, gets the kernel, launches, reports the error of a failed Check and the sizes found.
// `kernel(alignment)` returns a pointer to the entry for operands of that class; `failed(explain)` is called after a
// failed Check only, with a function of the Request, and throws its result; `found(o, dims)` is called for outputs
// whose size the kernel found.
template <class Kernel, class Failed, class Found>
void launch_checked(Core& core, const CheckedCall& call, Kernel&& kernel, Failed&& failed, Found&& found) {
  std::optional<DenseOutputs> dense;
  if (DenseOutputs::needed(call.outputs, call.in_place))
    dense.emplace(core, call.device, call.outputs, call.in_place, call.accumulate, call.launch);
  const CallBuffers buffers(core, call.device, call.plan, call.inputs, dense ? dense->arguments() : call.outputs,
                            call.launch);
  const auto entry = kernel(buffers.alignment);
  const int64_t bad_position = launch_plan(core, *entry, call.plan, buffers.views, call.launch);
  if (bad_position != no_bad_position)
    failed(
        [&](const Request& request) { return explain(core, call.op, request, call.plan, bad_position, call.inputs); });
  if (dense) dense->copy_back();
  for (size_t o = 0; o < call.outputs.size(); ++o)
    if (call.outputs[o].present && call.op.schema().outputs[o].found_size)
      found(o, call.op.found_dims(call.plan, static_cast<int>(o), buffers.outputs));
}

}  // namespace gradloom
