#pragma once
// What is left of a call once its kernel is there: pointers, scalars, launch, and the error that a failed Check means.
#include <span>

#include "codegen/abi.h"
#include "runtime/core.h"

namespace gradloom {

// More scalars than any plan has: its params, and each view's dims and strides.
inline constexpr int max_scalars = 2 * max_rank + max_views * 2 * max_rank;

// Fills the scalars and launches: the smallest bad position.
int64_t launch_plan(const Core& core, const KernelEntry& entry, const Plan& plan, void* const* buffers,
                    const LaunchOptions& options = {});

// The op's error for a failed Check. Inputs that lie on a device are read from there.
Error explain(const Core& core, const Op& op, const Request& request, const Plan& plan, int64_t bad_position,
              std::span<const Tensor> inputs);

}  // namespace gradloom
