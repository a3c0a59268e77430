// ElementwiseOp: an op by its element alone, on the targets of this build.
#include "gradloom/elementwise.h"

#include <gtest/gtest.h>

#include "gradloom/runtime.h"
#include "tests/support/targets.h"

namespace gradloom {
namespace {

OpSchema schema_of(int inputs, std::vector<DType> dtypes) {
  OpSchema s{.name = "Test", .outputs = {{.name = "y", .dtypes = dtypes}}};
  for (int i = 0; i < inputs; ++i) s.inputs.push_back({.name = "x" + std::to_string(i), .dtypes = dtypes});
  return s;
}

// x0 - 2 x1 + ..., of as many inputs as there are: no two of them can be swapped.
ir::Expr weighted(ir::KernelBuilder& b, const std::vector<ir::Expr>& in) {
  ir::Expr sum = in[0];
  for (size_t i = 1; i < in.size(); ++i)
    sum = b.let("sum", sum + in[i] * ir::constant(in[i].dtype(), i % 2 ? -2.0 * static_cast<double>(i) : 3));
  return sum;
}

Dims reversed(const Dims& dims) {
  Dims r;
  for (int d = dims.size() - 1; d >= 0; --d) r.push_back(dims[d]);
  return r;
}

TEST(Elementwise, AnyStridesShapesAndLevels) {
  for (const TargetKind target : all_targets()) {
    Runtime runtime({.target = target, .threads = 2, .disk_cache = "off"});
    const ElementwiseOp op(schema_of(4, {DType::f32}), weighted);
    for (const Dims& dims : {Dims{}, Dims{0, 3}, Dims{7}, Dims{3, 5, 2}, Dims{1, 33, 1}, Dims{300, 500}})
      for (const bool any_shape : {false, true})
        for (const bool accumulate : {false, true}) {
          const int64_t count = element_count(dims);
          std::vector<std::vector<float>> data(4, std::vector<float>(static_cast<size_t>(count) + 1));
          std::vector<Tensor> inputs;
          for (size_t i = 0; i < 4; ++i) {
            for (size_t k = 0; k < data[i].size(); ++k) data[i][k] = static_cast<float>((k * (i + 3)) % 11) - 4;
            // Every second one is stored with its dims reversed.
            Dims strides = dense_strides(dims);
            if (i % 2) strides = reversed(dense_strides(reversed(dims)));
            inputs.push_back(Tensor::borrow(data[i].data(), DType::f32, dims, strides));
          }
          std::vector<float> result(static_cast<size_t>(count) + 1, 100);
          std::vector<Tensor> outputs{Tensor::borrow(result.data(), DType::f32, dims)};
          const auto done =
              runtime.run_into(op, inputs, outputs, {}, {.accumulate = accumulate, .any_shape = any_shape});
          ASSERT_TRUE(done.ok()) << done.error().what();
          for (int64_t k = 0; k < count; ++k) {
            int64_t rest = k, transposed = 0;
            for (int d = dims.size() - 1; d >= 0; --d) {
              transposed += rest % dims[d] * inputs[1].strides()[d];
              rest /= dims[d];
            }
            const auto at = [&](size_t i) { return data[i][static_cast<size_t>(i % 2 ? transposed : k)]; };
            const float want = at(0) - 2 * at(1) + 3 * at(2) - 6 * at(3) + (accumulate ? 100.0f : 0.0f);
            ASSERT_EQ(result[static_cast<size_t>(k)], want)
                << runtime.target_name() << " " << to_string(dims) << " " << any_shape << accumulate << " at " << k;
          }
          EXPECT_EQ(result.back(), 100);
        }
  }
}

TEST(Elementwise, HalfPrecisionIsComputedInF32AndRoundedOnce) {
  for (const TargetKind target : all_targets()) {
    Runtime runtime({.target = target, .disk_cache = "off"});
    const ElementwiseOp op(schema_of(2, {DType::bf16}), [](ir::KernelBuilder&, const std::vector<ir::Expr>& in) {
      EXPECT_EQ(in[0].dtype(), DType::f32);
      return in[0] * in[1] - ir::constant(DType::f32, 1);
    });
    std::vector<uint16_t> x{0x3f85, 0x3f85};  // 1 + 5/128; rounded after the product the result would be 0x3da0
    const std::vector<Tensor> inputs(2, Tensor::borrow(x.data(), DType::bf16, {2}));
    const auto outputs = runtime.run(op, inputs);
    ASSERT_TRUE(outputs.ok()) << outputs.error().what();
    EXPECT_EQ(static_cast<const uint16_t*>(outputs.value()[0].data())[1], 0x3da3);
  }
}

// A plan of an op of one's own that is wrong: nothing is written.
TEST(OwnOp, AViewStaysWithinItsOperand) {
  struct Wrong final : Op {
    View input{.index = 0, .dims = {4}, .strides = {1}}, output{.output = true, .dims = {4}, .strides = {1}};
    Wrong()
        : Op(schema_of(1, {DType::f32}), {{.name = "direct", .author = [](KernelFrame& frame, const ir::Target&) {
                                             const ir::Buffer x = frame.view(0, "x"), y = frame.view(1, "y");
                                             frame.builder.loop("i", 0, y->dims[0], [&](const ir::Expr& i) {
                                               frame.builder.store(y, {i}, ir::load(x, {ir::Expr(0)}));
                                             });
                                             return ScheduleNest();
                                           }}}) {}
    Plan plan(const Request&) const override {
      Plan plan;
      plan.outputs.push_back({.dims = {4}});
      plan.views.push_back(input);
      plan.views.push_back(output);
      return plan;
    }
  };
  std::vector<float> x(4, 1), y(5, 2);
  for (const TargetKind target : all_targets()) {
    Runtime runtime({.target = target, .disk_cache = "off"});
    const auto message = [&](const Wrong& op) -> std::string {
      std::vector<Tensor> outputs{Tensor::borrow(y.data(), DType::f32, {4})};
      const auto done = runtime.run_into(op, std::vector{Tensor::borrow(x.data(), DType::f32, {4})}, outputs);
      return done.ok() ? "" : done.error().what();
    };
    Wrong op;
    op.output.dims = {5};
    EXPECT_EQ(message(op), "Test: view 1 of its plan reaches beyond output 0");
    op.output.dims = {2}, op.output.strides = {4};
    EXPECT_EQ(message(op), "Test: view 1 of its plan reaches beyond output 0");
    op.output.index = 3;
    EXPECT_EQ(message(op), "Test: view 1 of its plan is of output 3 of 1, with 1 dims and 1 strides");
    op.output.index = -1;
    EXPECT_EQ(message(op), "Test: view 1 of its plan is of output -1 of 1, with 1 dims and 1 strides");
    EXPECT_EQ(y, std::vector<float>(5, 2));
    Wrong input;
    input.input.dims = {4}, input.input.strides = {-2};
    EXPECT_EQ(message(input), "Test: view 0 of its plan reaches beyond input 0");
    input.input.dims = {2}, input.input.strides = {-1};  // as many elements, but before the first one
    EXPECT_EQ(message(input), "Test: view 0 of its plan reaches beyond input 0");
    EXPECT_EQ(message(Wrong()), "");
    y.assign(5, 2);
  }
}

TEST(Elementwise, WhatIsRefused) {
  const auto refusal = [](const OpSchema& schema) -> std::string {
    try {
      const ElementwiseOp op(schema, weighted);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(refusal(schema_of(5, {DType::f32})), "Test: an elementwise op has 1 to 4 inputs and one output");
  EXPECT_EQ(refusal(schema_of(0, {DType::f32})), "Test: an elementwise op has 1 to 4 inputs and one output");
  Runtime runtime({.target = TargetKind::interpreter});
  const ElementwiseOp op(schema_of(2, {DType::f32, DType::f64}), weighted);
  std::vector<double> x(6);
  const auto message = [&](DType dtype, const Dims& dims) -> std::string {
    return runtime
        .run(op, std::vector{Tensor::borrow(x.data(), DType::f32, {2, 3}), Tensor::borrow(x.data(), dtype, dims)})
        .error()
        .what();
  };
  EXPECT_EQ(message(DType::f32, {3, 2}),
            "Test: input 1 (x1) is f32 of shape [3,2]; it must be f32 of shape [2,3] as input 0 (x0)");
  EXPECT_EQ(message(DType::f64, {2, 3}),
            "Test: input 1 (x1) is f64 of shape [2,3]; it must be f32 of shape [2,3] as input 0 (x0)");
}

}  // namespace
}  // namespace gradloom
