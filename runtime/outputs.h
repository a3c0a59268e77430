#pragma once
// Checks of a call's outputs, and their memory.
#include <span>
#include <vector>

#include "gradloom/op.h"
#include "runtime/argument.h"
#include "runtime/core.h"

namespace gradloom {

// Masks of a schema's outputs: bit o.
inline uint32_t schema_outputs(const OpSchema& schema) {
  return static_cast<uint32_t>((uint64_t{1} << schema.outputs.size()) - 1);
}
uint32_t present_outputs(Arguments outputs);

void refuse_accumulate(const OpSchema& schema, const RunOptions& options);  // of a run that makes its outputs

// Checks that every wanted output has the plan's dtype and dims, is writable, and overlaps no input, no other output
// and not itself. Throws Error(invalid_argument) naming both.
void check_outputs(const OpSchema& schema, const Plan& plan, Arguments inputs, Arguments outputs);
void check_overlaps(const OpSchema& schema, Arguments inputs, Arguments outputs);  // the last of these

// Checks that shape-like inputs are in host memory, all else on the device (-1: the host). Throws
// Error(invalid_argument) naming the first that is not.
void check_devices(const OpSchema& schema, int device, Arguments inputs, Arguments outputs);

// The outputs of a run, absent where not wanted: in the memory that the launch's callback gives, or the runtime's,
// which is also that of outputs whose size the kernel is to find. Throws Error(resource_exhausted).
std::vector<Tensor> make_outputs(const Core& core, int device, const OpSchema& schema, const Plan& plan,
                                 uint32_t wanted, const LaunchOptions& launch);
// An output with the size that the kernel found, in the same memory.
Tensor of_size(const Tensor& output, const Dims& found);
// Moves those of a size that the kernel found, as they now are, to memory that the launch's callback gives.
void give_found(const OpSchema& schema, Arguments inputs, std::vector<Tensor>& made, const LaunchOptions& launch);

// The memory of one call. An output that the kernel writes but the caller did not pass (including Plan's internal ones)
// gets temporary memory for the call.
struct CallBuffers {
  CallBuffers(const Core& core, int device, const Plan& plan, Arguments inputs, Arguments outputs,
              const LaunchOptions& launch);
  void* views[max_views];
  void* outputs[max_outputs] = {};
  int64_t alignment;  // the alignment class of all operands

 private:
  std::vector<Tensor> hidden_;
};

}  // namespace gradloom
