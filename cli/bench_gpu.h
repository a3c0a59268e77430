#pragma once
// `gradloom bench gpu-report`: what the GPU's kernels of the benchmark cases cost, told without a GPU: NVRTC's time, what each function takes of a
// multiprocessor, launches, bytes and dependent steps, beside the prototypes' times on an H200.
#include <string>
#include <vector>

namespace gradloom::cli {

enum class ReportForm : uint8_t { table, markdown, json };

// Cases as `gradloom bench` names them: operators', gru_a to gru_c (GRUGrad), gru_a_forward and gru_a_forward_lbr0 to gru_c's (GRUTraining), products, groups,
// all. Throws UsageError for others, Error(device_error) without NVRTC, Error(unsupported) in a build without CUDA.
int bench_gpu_report(const std::vector<std::string>& names, const std::vector<int>& architectures, int repeats, ReportForm form);

}  // namespace gradloom::cli
