#include <gradloom/builder.h>
#include <gradloom/runtime.h>

#include <cstdio>
#include <vector>

using namespace gradloom;

int main() {
  // The gradient of relu: dx = x > 0 ? dy : 0. The computation ...
  ir::KernelBuilder b("relu_grad");
  const ir::Expr n = b.scalar("n", 0);
  const ir::Buffer dy = b.input("dy", DType::f32, {n}), x = b.input("x", DType::f32, {n}),
                   dx = b.output("dx", DType::f32, {n});
  b.loop("i", 0, n, [&](ir::Expr i) { b.store(dx, {i}, ir::select(ir::load(x, {i}) > 0, ir::load(dy, {i}), 0)); });

  // ... compiled for this machine. A nest without a schedule of its own gets the default one: checked steps that keep
  // every bit. gradloom/schedule.h has the steps, for one written by hand.
  Runtime runtime;
  Result<KernelExecutable> kernel = runtime.compile(b.build());
  if (!kernel) return std::printf("%s\n", kernel.error().what()), 1;
  for (const std::string& step : kernel.value().report().schedule_trace) std::printf("%s\n", step.c_str());
  std::vector<float> values{-1, 2, -3, 4, 5}, upstream{10, 20, 30, 40, 50};
  std::vector<Tensor> buffers{Tensor::borrow(upstream.data(), DType::f32, {5}),
                              Tensor::borrow(values.data(), DType::f32, {5}), Tensor::empty(DType::f32, {5})};
  if (auto done = kernel.value()(buffers, std::vector<int64_t>{5}); !done)
    return std::printf("%s\n", done.error().what()), 1;
  const float* result = static_cast<const float*>(buffers[2].data());
  for (int i = 0; i < 5; ++i) std::printf("%g ", result[i]);
  std::printf("\n");
  return result[0] == 0 && result[1] == 20 && result[4] == 50 ? 0 : 1;
}
