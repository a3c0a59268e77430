#include <gradloom/runtime.h>

#include <cstdio>
#include <vector>

using namespace gradloom;

int main() {
  Runtime runtime;  // LLVM on this machine's CPU, as many threads as it has

  // The gradient of an embedding lookup: 5 tokens of a vocabulary of 4, 3 features each. Token 2 appears twice, and -1
  // is the last row.
  std::vector<int64_t> shape{4, 3}, tokens{2, 0, 2, -1, 1};
  std::vector<float> upstream(5 * 3, 1.0f);
  std::vector<Tensor> inputs{Tensor::borrow(shape.data(), DType::i64, {2}),
                             Tensor::borrow(tokens.data(), DType::i64, {5}),
                             Tensor::borrow(upstream.data(), DType::f32, {5, 3})};

  Result<std::vector<Tensor>> outputs = runtime.run("GatherGrad", inputs, {{"axis", int64_t{0}}});
  if (!outputs) return std::printf("%s\n", outputs.error().what()), 1;
  const float* gradient = static_cast<const float*>(outputs.value()[0].data());
  for (int row = 0; row < 4; ++row)
    std::printf("%g %g %g\n", gradient[row * 3], gradient[row * 3 + 1], gradient[row * 3 + 2]);

  // For hot loops: a handle, checked and compiled once, that writes into memory of yours.
  std::vector<float> mine(4 * 3);
  std::vector<Tensor> into{Tensor::borrow(mine.data(), DType::f32, {4, 3})};
  Result<Executable> handle = runtime.compile("GatherGrad", inputs, {{"axis", int64_t{0}}});
  if (!handle) return std::printf("%s\n", handle.error().what()), 1;
  if (auto done = handle.value()(inputs, into); !done) return std::printf("%s\n", done.error().what()), 1;

  // Bad input is an error that names what was wrong, never a write out of bounds.
  tokens[1] = 4;
  std::printf("%s\n", runtime.run("GatherGrad", inputs).error().what());
  return gradient[2 * 3] == 2 && mine[2 * 3] == 2 ? 0 : 1;
}
