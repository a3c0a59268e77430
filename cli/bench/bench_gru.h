#pragma once
// `gradloom bench gru_grad`: GRUGrad against the time of its products at the measured multiply-add peak.
#include <string>
#include <vector>

#include "cli/bench/bench_cases.h"

namespace gradloom::cli {

// The named cases, all for "gru_grad"; empty when the name matches none.
std::vector<const GruCase*> chosen_gru_cases(const std::vector<std::string>& names);

// A call's operands in host memory: a forward pass computes the saved values.
struct GruOperands {
  GruOperands(const GruCase& c, Runtime& runtime);
  const Attributes attributes{{"linear_before_reset", int64_t{1}}};
  std::vector<Tensor> inputs, outputs;  // outputs are filled with NaN: unwritten elements are detected
};
// The first element of dX, dW, dR, dB, dH0 whose difference from the plain loops exceeds the rounding of a few
// reordered additions; empty: none.
std::string gru_difference(const GruCase& c, const std::vector<Tensor>& inputs, const std::vector<Tensor>& outputs);

int bench_gru(const std::vector<const GruCase*>& cases, Runtime& runtime, const RunOptions& options, double seconds,
              bool json);

}  // namespace gradloom::cli
