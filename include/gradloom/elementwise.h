#pragma once
// Ops that compute each element of their output from the same element of each input.
#include <functional>
#include <vector>

#include "gradloom/op.h"

#pragma GCC visibility push(default)
namespace gradloom {

//   const ElementwiseOp relu_grad({.name = "ReluGrad",
//                                  .inputs = {{.name = "dY", .dtypes = floats}, {.name = "X", .dtypes = floats}},
//                                  .outputs = {{.name = "dX", .dtypes = floats}}},
//                                 [](ir::KernelBuilder&, const std::vector<ir::Expr>& v) {
//                                   return ir::select(v[1] > 0, v[0], 0);
//                                 });
//
// The inputs, at most max_inputs of them, have one shape and one dtype, and any strides; so has the output, dense.
// `accumulate` adds to it. Strategy "direct" is vectorized and parallel.
class ElementwiseOp : public Op {
 public:
  static constexpr int max_inputs = 4;
  // Returns the output's element; lets go to the builder. Elements of f16 and bf16 are given, and returned, as f32.
  using Element = std::function<ir::Expr(ir::KernelBuilder& b, const std::vector<ir::Expr>& inputs)>;
  // Throws Error(invalid_argument) for a schema with more inputs, with optional ones, or without one output.
  ElementwiseOp(OpSchema schema, Element element);

 private:
  Plan plan(const Request& request) const override;
};

}  // namespace gradloom

#pragma GCC visibility pop
