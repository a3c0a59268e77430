#pragma once
// `gradloom bench gpu-time`: calls on target cuda through handles, back to back on one stream, each case's output
// verified; compared with PyTorch's times where a file lists them. bench/gpu_check produces both and the table of
// docs/gpu-results.md.
#include <optional>
#include <string>
#include <vector>

#include "gradloom/op.h"

namespace gradloom::cli {

struct GpuTimeOptions {
  std::vector<std::string> cases;          // operators' and gru_a to gru_c; empty: all
  std::vector<DType> dtypes{DType::f32};   // of values: f32, f16, bf16; GRUGrad is timed in f32 only
  double seconds = 0.3;                    // per case
  std::optional<Determinism> determinism;  // the weakest level allowed; none: the target's default
  std::string beside;  // JSON lines {"case", "name", "us", "dtype" unless f32} of another library; empty: none
  bool json = false, markdown = false;
};

// Throws UsageError for unknown cases, Error(device_error) where there is no GPU.
int bench_gpu_time(const GpuTimeOptions& options);

}  // namespace gradloom::cli
