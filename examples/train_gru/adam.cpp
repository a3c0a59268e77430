#include "adam.h"

#include <cmath>

#include "nests.h"

namespace train_gru {

Adam::Adam(Runtime& runtime, const Parameters& parameters, const Parameters& gradient, double rate, int64_t steps)
    : rate_(rate), steps_(steps) {
  const DType dtype = parameters.flat.dtype();
  const int64_t n = parameters.flat.elements();
  const auto zeros = [&] { return Tensor::of(dtype, {n}, std::vector<double>(n)); };
  update_ = bind(runtime, adam(dtype, n), {gradient.flat, parameters.flat, zeros(), zeros()}, dtype);
}

void Adam::step() {
  const double rate = rate_ * (1 - static_cast<double>(done_) / static_cast<double>(steps_));
  const double t = static_cast<double>(++done_);
  update_({rate, 1 / (1 - std::pow(adam_beta1, t)), 1 / (1 - std::pow(adam_beta2, t))});
}

}  // namespace train_gru
