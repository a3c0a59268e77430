#pragma once
// Checks of the caller's output tensors, and their memory.
#include <span>
#include <vector>

#include "gradloom/op.h"
#include "gradloom/tensor.h"
#include "runtime/core.h"

namespace gradloom {

uint32_t present_outputs(const OpSchema& schema,
                         std::span<const Tensor> outputs);  // bit o; throws Error(invalid_argument) for surplus tensors

// Checks that every wanted output has the plan's dtype and dims, is dense and writable, and overlaps no input and no
// other output. Throws Error(invalid_argument) naming both.
void check_outputs(const OpSchema& schema, const Plan& plan, std::span<const Tensor> inputs,
                   std::span<const Tensor> outputs);

// After a launch: outputs whose size the kernel computed become views of that size. `memory`: the data of all of the
// plan's outputs.
void trim_outputs(const Op& op, const Plan& plan, std::span<void* const> memory, std::span<Tensor> outputs);

// Checks that shape-like inputs are in host memory, all else on the device (-1: the host). Throws
// Error(invalid_argument) naming the first that is not.
void check_devices(const OpSchema& schema, int device, std::span<const Tensor> inputs, std::span<const Tensor> outputs);

bool overlap(const Tensor& a, const Tensor& b);
bool aligned(const Tensor& tensor, int64_t bytes);  // an empty one is

// The memory of one call. An output that the kernel writes but the caller did not pass (including Plan's internal ones)
// gets temporary memory for the call.
struct CallBuffers {
  CallBuffers(const Core& core, int device, const Plan& plan, std::span<const Tensor> inputs,
              std::span<const Tensor> outputs, const LaunchOptions& launch);
  void* views[max_views];
  void* outputs[max_outputs] = {};
  int64_t alignment;  // the alignment class of all operands

 private:
  std::vector<Tensor> hidden_;
};

}  // namespace gradloom
