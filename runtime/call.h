#pragma once
// The common path of every call once its arguments are checked, whether it allocates its outputs, is given them or goes
// through a handle.
#include <span>

#include "codegen/abi.h"
#include "runtime/core.h"
#include "runtime/outputs.h"

namespace gradloom {

// Fills the scalars and launches; returns the smallest bad position.
int64_t launch_plan(const Core& core, const KernelEntry& entry, const Plan& plan, void* const* buffers,
                    const LaunchOptions& options = {});

// The op's error for a failed Check. Inputs in device memory are read back.
Error explain(const Core& core, const Op& op, const Request& request, const Plan& plan, int64_t bad_position,
              std::span<const Tensor> inputs);

struct CheckedCall {
  const Op& op;
  const Plan& plan;
  int device;  // where the tensors are
  std::span<const Tensor> inputs, outputs;
  std::span<Tensor> trimmed;  // the outputs again where they are to be trimmed to the sizes found, else empty
  const LaunchOptions& launch;
};

// Allocates memory, gets the kernel, launches, reports the error of a failed Check and the sizes found.
// `kernel(alignment)` returns a pointer to the entry for operands of that class; `failed(explain)` is called after a
// failed Check only, with a function of the Request, and throws its result.
template <class Kernel, class Failed>
void launch_checked(const Core& core, const CheckedCall& call, Kernel&& kernel, Failed&& failed) {
  const CallBuffers buffers(core, call.device, call.plan, call.inputs, call.outputs, call.launch);
  const auto entry = kernel(buffers.alignment);
  const int64_t bad_position = launch_plan(core, *entry, call.plan, buffers.views, call.launch);
  if (bad_position != no_bad_position)
    failed(
        [&](const Request& request) { return explain(core, call.op, request, call.plan, bad_position, call.inputs); });
  trim_outputs(call.op, call.plan, buffers.outputs, call.trimmed);
}

}  // namespace gradloom
