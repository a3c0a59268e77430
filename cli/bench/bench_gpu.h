#pragma once
// `gradloom bench gpu-report`: what the GPU's kernels of the benchmark cases cost, told without a GPU: NVRTC's time,
// what each function takes of a multiprocessor, launches, bytes and dependent steps, beside the prototypes' times on an
// H200.
#include <string>
#include <vector>

#include "ops/op.h"

namespace gradloom::cli {

enum class ReportForm : uint8_t { table, markdown, json };

struct GpuReportOptions {
  // As `gradloom bench` names them: operators', gru_a to gru_c (GRUGrad), gru_a_forward and gru_a_forward_lbr0 to
  // gru_c's (GRUTraining), products, groups, all.
  std::vector<std::string> cases;
  std::vector<int> architectures;
  std::vector<Determinism> levels;  // a level whose strategy is that of a stronger one in the list is left out
  std::vector<DType> dtypes;        // of values: f32, f16, bf16; products of GemmCase are f32 only
  int repeats = 3;
  ReportForm form = ReportForm::table;
};

// Throws UsageError for unknown cases, Error(device_error) without NVRTC, Error(unsupported) in a build without CUDA.
int bench_gpu_report(const GpuReportOptions& options);

}  // namespace gradloom::cli
