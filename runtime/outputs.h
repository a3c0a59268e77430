#pragma once
// The caller's output tensors: what a kernel may write to.
#include <span>
#include <vector>

#include "gradloom/op.h"
#include "gradloom/tensor.h"
#include "runtime/core.h"

namespace gradloom {

uint32_t present_outputs(const OpSchema& schema,
                         std::span<const Tensor> outputs);  // bit o; throws Error(invalid_argument) for surplus tensors

// Every wanted output has the plan's dtype and dims, is dense and writable, and shares no byte with an input or another
// output. Throws Error(invalid_argument) naming both.
void check_outputs(const OpSchema& schema, const Plan& plan, std::span<const Tensor> inputs,
                   std::span<const Tensor> outputs);

// After a launch: outputs whose size the kernel found become views of that size. `memory`: the data of all of the
// plan's outputs.
void trim_outputs(const Op& op, const Plan& plan, std::span<void* const> memory, std::span<Tensor> outputs);

// Shape-like inputs are in host memory, all else is the device's (-1: the host's). Throws Error(invalid_argument)
// naming the first that is not.
void check_devices(const OpSchema& schema, int device, std::span<const Tensor> inputs, std::span<const Tensor> outputs);

bool overlap(const Tensor& a, const Tensor& b);
bool aligned(const Tensor& tensor, int64_t bytes);  // an empty one is

// The memory of one call. An output that the kernel writes though the caller did not give it (Plan's internal ones
// among them) gets its own for the call.
struct CallBuffers {
  CallBuffers(const Core& core, int device, const Plan& plan, std::span<const Tensor> inputs,
              std::span<const Tensor> outputs, const LaunchOptions& launch);
  void* views[max_views];
  void* outputs[max_outputs] = {};
  int64_t alignment;  // the class of all operands

 private:
  std::vector<Tensor> hidden_;
};

}  // namespace gradloom
