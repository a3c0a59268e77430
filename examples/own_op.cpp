// A custom op: calls are checked, tensors may have any strides, kernels are shape-specialised or any-shape, and cached.
#include <gradloom/elementwise.h>
#include <gradloom/runtime.h>
#include <gradloom/schedule_common.h>

#include <cstdio>

using namespace gradloom;

// dX = X > 0 ? dY : 0, by its element alone: any strides and accumulate, vectorized and parallel.
ElementwiseOp relu_grad_of_elements() {
  const std::vector<DType> floats{DType::f16, DType::bf16, DType::f32, DType::f64};
  return {{.name = "ReluGrad",
           .inputs = {{.name = "dY", .dtypes = floats}, {.name = "X", .dtypes = floats}},
           .outputs = {{.name = "dX", .dtypes = floats}}},
          [](ir::KernelBuilder&, const std::vector<ir::Expr>& in) { return ir::select(in[1] > 0, in[0], 0); }};
}

// The same with nothing done for it: its check, its loop nest and its schedule, as any op has them.
class ReluGrad : public Op {
 public:
  ReluGrad()
      : Op({.name = "ReluGrad",
            .inputs = {{.name = "dY", .dtypes = {DType::f32}}, {.name = "X", .dtypes = {DType::f32}}},
            .outputs = {{.name = "dX", .dtypes = {DType::f32}}}},
           {{.name = "direct", .author = author}}) {}

 private:
  // The outputs, and the kernel's buffers in order.
  Plan plan(const Request& request) const override {
    const Dims& dims = request.input(0).dims;
    if (request.input(1).dims != dims) refuse(schema(), ErrorCode::invalid_argument, "X and dY have unlike shapes");
    if (request.accumulate) refuse(schema(), ErrorCode::unsupported, "accumulate");
    Plan plan;
    plan.outputs.push_back({.dims = dims});
    for (int i = 0; i < 2; ++i) plan.views.push_back({.index = i, .dims = dims, .strides = request.input(i).strides});
    plan.views.push_back({.output = true, .dims = dims, .strides = dense_strides(dims)});
    return plan;
  }
  // The loop nest, and how it is scheduled.
  static ScheduleNest author(KernelFrame& frame, const ir::Target& target) {
    const ir::Buffer dy = frame.view(0, "dy"), x = frame.view(1, "x"), dx = frame.view(2, "dx");
    const std::vector<ir::Loop> loops = frame.builder.loops("i", dx->dims, [&](const std::vector<ir::Expr>& i) {
      frame.builder.store(dx, i, ir::select(ir::load(x, i) > 0, ir::load(dy, i), 0));
    });
    if (loops.empty() || target.gpu) return {};
    return [=](ir::Schedule& s) { vectorize_elements(s, loops.back(), size_of(DType::f32), 4, target); };
  }
};

int main() {
  const ReluGrad relu_grad;
  Runtime runtime;
  std::vector<float> gradient{1, 2, 3, 4, 5, 6}, values{-1, 2, -3, 4, 5, -6};
  // dY is a transposed view: [3, 2] of [2, 3].
  const std::vector<Tensor> inputs{Tensor::borrow(gradient.data(), DType::f32, {3, 2}, {1, 3}),
                                   Tensor::borrow(values.data(), DType::f32, {3, 2})};
  const float wanted[] = {0, 4, 0, 5, 3, 0};
  const ElementwiseOp of_elements = relu_grad_of_elements();
  for (const Op* op : {static_cast<const Op*>(&of_elements), static_cast<const Op*>(&relu_grad)}) {
    auto outputs = runtime.run(*op, inputs);
    if (!outputs) return std::printf("%s\n", outputs.error().what()), 1;
    const float* result = static_cast<const float*>(outputs.value()[0].data());
    for (int i = 0; i < 6; ++i) std::printf("%g ", result[i]);
    std::printf("\n");
    if (!std::equal(wanted, wanted + 6, result)) return 1;
  }

  const std::vector<Tensor> unlike{inputs[0], Tensor::borrow(values.data(), DType::f32, {6})};
  for (const Op* op : {static_cast<const Op*>(&of_elements), static_cast<const Op*>(&relu_grad)})
    std::printf("%s\n", runtime.run(*op, unlike).error().what());
}
