#pragma once
// The naive implementation, the baseline of the demo's times: plain C++ loops on one thread, as fast as this build's
// compiler makes them.
#include <functional>

#include "cli/bench/bench_cases.h"

namespace gradloom::cli {

// The gradient of a benchmark case, into `out` (float32, dense).
void plain_gradient(const BenchCase& c, const std::vector<Tensor>& inputs, const Tensor& out);
// GRUTraining of a GruOperands' inputs: the states of all steps [S, 1, N, H].
void plain_gru(const GruCase& c, const std::vector<Tensor>& inputs, const Tensor& states);
// dx = dy * d/dx (x * logistic(x))
void plain_silu_grad(const float* dy, const float* x, float* dx, int64_t n);

double call_ms(const std::function<void()>& call, double seconds);  // the median, after an untimed call

}  // namespace gradloom::cli
