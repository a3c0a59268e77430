#pragma once
// Runs `gradloom nest`'s call on one target, or on all of them for comparison.
#include <string>

#include "cli/nest_call.h"
#include "gradloom/runtime.h"

namespace gradloom::cli {

// Runs the kernel through Runtime, as a user would. The call's out and inout buffers then contain the results. Returns
// the target's name. Throws Error, also for a write outside the elements of a buffer in host memory.
std::string run_nest(const ir::Kernel& kernel, nest::Call& call, const RuntimeOptions& runtime,
                     const KernelOptions& how);

// The nests of a comparison: the definition for the interpreter, the scheduled one for the other targets.
struct NestsToCompare {
  ir::Kernel authored, scheduled;
  KernelOptions how;
  bool on_cpu = true, on_gpu = true;  // where `scheduled` may run
};
// Runs all targets of this build on the same values. Returns one line that lists the targets that agree; throws Error
// where the definition has none, and DifferentResults for the first difference.
class DifferentResults : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};
std::string compare_nest(const NestsToCompare& nests, const nest::Call& call, const RuntimeOptions& runtime);

}  // namespace gradloom::cli
