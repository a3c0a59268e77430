#include <gradloom/runtime.h>

#include <cmath>
#include <cstdio>
#include <vector>

using namespace gradloom;

int main() {
  Runtime runtime;

  // The gradient of an embedding of 50257 tokens, which a batch of three tokens adds to. Token 17 appears twice.
  constexpr int64_t vocabulary = 50257, width = 768;
  std::vector<float> gradient(vocabulary * width, -0.0f), upstream(3 * width, 0.5f);
  std::vector<int64_t> shape{vocabulary, width}, tokens{17, -1, 17};
  std::vector<Tensor> inputs{Tensor::borrow(shape.data(), DType::i64, {2}),
                             Tensor::borrow(tokens.data(), DType::i64, {3}),
                             Tensor::borrow(upstream.data(), DType::f32, {3, width})};
  std::vector<Tensor> into{Tensor::borrow(gradient.data(), DType::f32, {vocabulary, width})};
  if (auto done = runtime.run_into("GatherGrad", inputs, into, {}, {.accumulate = true}); !done)
    return std::printf("%s\n", done.error().what()), 1;

  const float named = gradient[17 * width], last = gradient.back(), other = gradient[18 * width];
  std::printf("%g %g %g by %s\n", named, last, other, runtime.last_report().strategy.c_str());
  return named == 1 && last == 0.5f && std::signbit(other) ? 0 : 1;
}
