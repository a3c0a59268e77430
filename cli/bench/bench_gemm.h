#pragma once
// `gradloom bench gemm`: matrix products against this core's multiply-add peak, measured between the calls.
#include <string>
#include <vector>

#include "gradloom/runtime.h"

namespace gradloom::cli {

// C[steps, m, n] = A[steps, m, k] B[k, n], float32, B packed into panels once for all steps. A transposed operand is
// stored as [k, m], or [n, k].
struct GemmCase {
  std::string name;
  int64_t m, n, k;
  bool a_transposed = false, b_transposed = false;
  int64_t steps = 1;
  double flops() const {
    return 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k) * static_cast<double>(steps);
  }
};
const std::vector<GemmCase>& gemm_cases();
// The named cases, all for "gemm"; empty when the name matches none.
std::vector<const GemmCase*> chosen_gemm_cases(const std::vector<std::string>& names);

int bench_gemm(const std::vector<const GemmCase*>& cases, Runtime& runtime, double seconds, bool json);

}  // namespace gradloom::cli
