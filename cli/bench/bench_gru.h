#pragma once
// `gradloom bench gru_grad`: GRUGrad beside the time that its products take at the measured multiply-add peak.
#include <string>
#include <vector>

#include "cli/bench/bench_cases.h"

namespace gradloom::cli {

// Those named, all for "gru_grad"; empty when a name is none of them.
std::vector<const GruCase*> chosen_gru_cases(const std::vector<std::string>& names);

// A call's operands in host memory: the forward pass gives what is saved.
struct GruOperands {
  GruOperands(const GruCase& c, Runtime& runtime);
  const Attributes attributes{{"linear_before_reset", int64_t{1}}};
  std::vector<Tensor> inputs, outputs;  // outputs hold NaN: what is not written shows
};
// The first element of dX, dW, dR, dB, dH0 that is farther from plain loops' than the order of a few additions brings;
// empty: none.
std::string gru_difference(const GruCase& c, const std::vector<Tensor>& inputs, const std::vector<Tensor>& outputs);

int bench_gru(const std::vector<const GruCase*>& cases, Runtime& runtime, double seconds, bool json);

}  // namespace gradloom::cli
