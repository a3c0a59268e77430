#pragma once
// From a call to its entry in the tuning log: its candidates are searched, each measured on the memory given.
#include "gradloom/tune.h"
#include "runtime/core.h"
#include "runtime/trials.h"

namespace gradloom {

// Whether tuning has a say in the call's kernel: not where the caller names a strategy or wants the kernel of every
// shape, which one shape must not decide for.
inline bool may_tune(const PlannedCall& call) { return call.options.strategy.empty() && !call.options.any_shape; }

// How a call is named in the log, whatever its strategy.
std::string tuning_op(const PlannedCall& call);
std::string tuning_call(const PlannedCall& call);
std::string tuning_op(const ir::Kernel& nest);
std::string tuning_call(const ir::Kernel& nest);
std::string nest_hash(const ir::Kernel& nest);

struct TuneResult {
  TuneReport report;
  TuningEntry entry;
  int64_t bad_position = 0;  // a Check of the call failed: nothing was measured
};
// `site`: where the kernels run; its name and its `build` are made here.
TuneResult tune_call(const Core& core, const PlannedCall& call, TrialSite site, const TuneOptions& how);
TuneResult tune_nest(const Core& core, const ir::Kernel& nest, TrialSite site, const TuneOptions& how);

// What Runtime::tune does.
TuneReport tune(Core& core, const Op& op, std::span<const Tensor> inputs, const Attributes& attributes,
                const RunOptions& options, const TuneOptions& how);
TuneReport tune(Core& core, const ir::Kernel& nest, std::span<const Tensor> buffers, std::span<const int64_t> slots,
                const TuneOptions& how);  // arguments that were checked

}  // namespace gradloom
