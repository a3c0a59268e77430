// Row sums: a sum with a declared order, which vectors and threads share with the same bits everywhere (docs/sums.md).
#include <gradloom/builder.h>
#include <gradloom/runtime.h>

#include <cstdio>
#include <vector>

using namespace gradloom;

int main() {
  ir::KernelBuilder b("row_sums");
  const ir::Expr n = b.scalar("n", 0), m = b.scalar("m", 0);
  const ir::Buffer x = b.input("x", DType::f32, {n, m}), y = b.output("y", DType::f32, {n});
  b.loop("i", 0, n, [&](ir::Expr i) {
    b.store(y, {i}, b.sum("k", 0, m, [&](ir::Expr k) { return ir::load(x, {i, k}); }));
  });

  Runtime runtime;
  Result<KernelExecutable> kernel = runtime.compile(b.build());
  if (!kernel) return std::printf("%s\n", kernel.error().what()), 1;
  const int64_t rows = 3, columns = 1000;
  std::vector<float> values(rows * columns, 0.5f);
  std::vector<Tensor> buffers{Tensor::borrow(values.data(), DType::f32, {rows, columns}),
                              Tensor::empty(DType::f32, {rows})};
  if (auto done = kernel.value()(buffers, std::vector<int64_t>{rows, columns}); !done)
    return std::printf("%s\n", done.error().what()), 1;
  const float* sums = static_cast<const float*>(buffers[1].data());
  for (int64_t i = 0; i < rows; ++i) std::printf("%g ", sums[i]);
  std::printf("\n");
  return sums[0] == 500 && sums[2] == 500 ? 0 : 1;
}
