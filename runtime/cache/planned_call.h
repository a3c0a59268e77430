#pragma once
// A call that the op has checked: all that its kernel depends on.
#include "ops/op.h"
#include "runtime/cache/call_key.h"
#include "runtime/cache/kernel_key.h"

namespace gradloom {

struct PlannedCall {
  const Op& op;
  const Plan& plan;
  const std::string& strategy;
  const RunOptions& options;
  uint32_t outputs_wanted = ~0u;
  int64_t output_alignment = any_outputs;
  const Request* request = nullptr;  // what was checked, to be noted among the calls used

  KernelKey key() const { return KernelKey(op, plan, strategy, options, outputs_wanted, output_alignment); }
};

// What is saved of it. Requires a request.
CallKey call_key(const PlannedCall& call);
// Throws Error(invalid_argument) when its outputs' is no alignment class.
void check_output_alignment(const CallKey& call);
// One of them as bytes, within this process.
std::string save_call(const CallKey& call);
CallKey load_call(std::string_view bytes);

}  // namespace gradloom
