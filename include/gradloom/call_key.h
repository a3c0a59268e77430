#pragma once
// Calls without their data: a job saves them so that the next job can compile its kernels ahead of the calls.
#include <span>
#include <string>
#include <vector>

#include "gradloom/op.h"
#include "gradloom/options.h"

#pragma GCC visibility push(default)
namespace gradloom {

// Identifies a call's kernel without the call's data: saved by one job, passed to `prewarm` by the next.
struct CallKey {
  struct Input {
    bool present = false;
    DType dtype = DType::f32;
    Dims dims, strides;
    std::string values;  // of a shape-like input, dense
  };
  std::string op;
  std::vector<Input> inputs;
  Attributes attributes;
  RunOptions options;  // with the chosen strategy
  uint32_t outputs_wanted = ~0u;
  int64_t output_alignment = 1;
};
std::string save_calls(std::span<const CallKey> calls);          // for a file
Result<std::vector<CallKey>> load_calls(std::string_view file);  // from the output of save_calls

struct PrewarmReport {
  int64_t ready = 0, compiled = 0, failed = 0;  // ready: in memory now
  std::string first_failure;
};

}  // namespace gradloom

#pragma GCC visibility pop
