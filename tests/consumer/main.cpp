// A third-party program, built against an installed gradloom: one op by name, one custom loop nest.
#include <gradloom/builder.h>
#include <gradloom/runtime.h>

#include <cstdio>
#include <vector>

#include "runtime/tensor.h"

int main() {
  using namespace gradloom;
  Runtime runtime;
  std::vector<float> gradient{1, 2, 3, 4};
  std::vector<int64_t> shape{4}, starts{3}, ends{INT64_MIN}, axes{0}, steps{-1};
  std::vector<Tensor> inputs{
      Tensor::borrow(gradient.data(), DType::f32, {4}), Tensor::borrow(shape.data(), DType::i64, {1}),
      Tensor::borrow(starts.data(), DType::i64, {1}),   Tensor::borrow(ends.data(), DType::i64, {1}),
      Tensor::borrow(axes.data(), DType::i64, {1}),     Tensor::borrow(steps.data(), DType::i64, {1})};
  auto outputs = runtime.run("SliceGrad", inputs);
  if (!outputs.ok()) return std::fprintf(stderr, "%s\n", outputs.error().what()), 1;
  const float* reversed = static_cast<const float*>(outputs.value()[0].data());
  for (int i = 0; i < 4; ++i)
    if (reversed[i] != gradient[3 - i]) return std::fprintf(stderr, "element %d is %g\n", i, reversed[i]), 1;

  ir::KernelBuilder b("twice");
  ir::Buffer x = b.input("x", DType::f32, {4}), y = b.output("y", DType::f32, {4});
  b.loop("i", 0, 4, [&](ir::Expr i) { b.store(y, {i}, ir::load(x, {i}) + ir::load(x, {i})); });
  auto twice = runtime.compile(b.build());
  if (!twice.ok()) return std::fprintf(stderr, "%s\n", twice.error().what()), 1;
  std::vector<Tensor> buffers{inputs[0], Tensor::empty(DType::f32, {4})};
  if (auto ran = twice.value()(buffers); !ran.ok()) return std::fprintf(stderr, "%s\n", ran.error().what()), 1;
  return static_cast<const float*>(buffers[1].data())[3] == 8 && embedder::Tensor().rows == 3 ? 0 : 1;
}
