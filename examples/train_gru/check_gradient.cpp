#include "check_gradient.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "model.h"

namespace train_gru {

bool check_gradient(Runtime& runtime, int64_t seed) {
  constexpr double step = 1e-5, allowed = 1e-8;  // truncation error: about step^2; rounding error: rounding / step
  const Sizes sizes{.vocabulary = 5, .embedding = 3, .hidden = 4, .sequence = 6, .batch = 3};
  Model model(runtime, DType::f64, sizes);
  Random random(static_cast<uint64_t>(seed));
  draw(model.parameters, random);
  for (const Tensor& characters : {model.batch.tokens, model.batch.targets})
    for (int64_t i = 0; i < characters.elements(); ++i)
      static_cast<int64_t*>(characters.data())[i] = random.below(sizes.vocabulary);
  model.loss();
  model.differentiate();

  bool right = true;
  for (size_t part = 0; part < model.parameters.parts.size(); ++part) {
    const Tensor &values = model.parameters.parts[part].tensor, &gradient = model.gradient.parts[part].tensor;
    double largest = 0, error = 0;
    for (int64_t i = 0; i < values.elements(); ++i) {
      double& value = static_cast<double*>(values.data())[i];
      const double derivative = static_cast<const double*>(gradient.data())[i], old = value;
      value = old + step;
      const double above = model.loss();
      value = old - step;
      const double below = model.loss();
      value = old;
      largest = std::max(largest, std::abs(derivative));
      error = std::max(error, std::abs((above - below) / (2 * step) - derivative));
    }
    const bool agrees = error <= allowed && largest > 0;
    fmt::print("{:<15} {:>3} values, largest derivative {:.2e}, largest error {:.1e}: {}\n",
               model.parameters.parts[part].name, values.elements(), largest, error, agrees ? "right" : "WRONG");
    right = right && agrees;
  }
  return right;
}

}  // namespace train_gru
