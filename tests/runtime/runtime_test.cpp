// The runtime's contracts on the reference executor: handles, refusals, and the state after an error.
#include "gradloom/runtime.h"

#include <gtest/gtest.h>

#include "tests/runtime/runtime_ops.h"

namespace gradloom {
namespace {

using namespace testing;

TEST(Runtime, RunsAndReportsHitsAndMisses) {
  ScaleOp op;
  Runtime runtime(interpreted());
  const Tensor x = floats({2, 2}, {1, 2, 3, 4});
  auto first = runtime.run(op, std::vector{x, factor(3)});
  ASSERT_TRUE(first.ok()) << first.error().what();
  EXPECT_EQ(values_of(first.value()[0]), (Values{3, 6, 9, 12}));
  EXPECT_EQ(values_of(first.value()[1]), (Values{-1, -2, -3, -4}));
  EXPECT_TRUE(runtime.last_report().compiled);
  EXPECT_EQ(runtime.last_report().strategy, "direct");
  EXPECT_EQ(runtime.last_report().target, "interpreter");
  // A parameter's value is no part of the key.
  EXPECT_EQ(values_of(runtime.run(op, std::vector{x, factor(5)}).value()[0]), (Values{5, 10, 15, 20}));
  EXPECT_FALSE(runtime.last_report().compiled);
  const Stats stats = runtime.stats();
  EXPECT_EQ(stats.hits, 1);
  EXPECT_EQ(stats.misses, 1);
  EXPECT_EQ(stats.compiles, 1);
  EXPECT_EQ(stats.launches, 2);
  EXPECT_EQ(stats.entries, 1);
  EXPECT_EQ(op.authored, 1);
}

TEST(Runtime, WhateverChangesCodeMakesAnotherKernel) {
  ScaleOp op;
  Runtime runtime(interpreted());
  const auto run = [&](const Tensor& x, const Attributes& attributes = {}, const RunOptions& options = {}) {
    auto result = runtime.run(op, std::vector{x, factor(2)}, attributes, options);
    EXPECT_TRUE(result.ok()) << result.error().what();
    return values_of(result.value()[0]);
  };
  float data[8] = {0, 1, 2, 3, 4, 5, 6, 7};
  const Tensor dense = Tensor::borrow(data, DType::f32, {2, 2});
  EXPECT_EQ(run(dense), (Values{0, 2, 4, 6}));
  EXPECT_EQ(run(Tensor::borrow(data, DType::f32, {4})), (Values{0, 2, 4, 6}));
  EXPECT_EQ(run(Tensor::borrow(data, DType::f32, {2, 2}, {4, 1})), (Values{0, 2, 8, 10}));
  EXPECT_EQ(run(Tensor::borrow(data, DType::f32, {2, 2}, {1, 2})), (Values{0, 4, 2, 6}));
  EXPECT_EQ(run(Tensor::borrow(data + 3, DType::f32, {2, 2}, {-2, -1})), (Values{6, 4, 2, 0}));
  EXPECT_EQ(run(Tensor::borrow(data + 1, DType::f32, {2, 2}, {0, 0})), (Values{2, 2, 2, 2}));
  EXPECT_EQ(run(dense, {{"offset", int64_t{7}}}), (Values{7, 9, 11, 13}));
  EXPECT_EQ(run(dense, {}, {.strategy = "two_loops"}), (Values{0, 2, 4, 6}));
  EXPECT_EQ(run(dense, {}, {.any_shape = true}), (Values{0, 2, 4, 6}));
  EXPECT_EQ(run(dense, {}, {.outputs_wanted = 1}), (Values{0, 2, 4, 6}));
  EXPECT_EQ(op.authored, 10);
  EXPECT_EQ(runtime.stats().compiles, 10);
  // The same again, and dims of size 1 with odd strides: no new one.
  EXPECT_EQ(run(dense), (Values{0, 2, 4, 6}));
  EXPECT_EQ(run(Tensor::borrow(data, DType::f32, {2, 2}, {2, 1})), (Values{0, 2, 4, 6}));
  EXPECT_EQ(op.authored, 10);
}

TEST(Runtime, TheAnyShapeKernelServesEveryShapeOfARank) {
  ScaleOp op;
  Runtime runtime(interpreted());
  for (int64_t n : {1, 3, 5, 0}) {
    const Tensor x = floats({2, n}, std::vector<float>(2 * n, 1.5f));
    auto result = runtime.run(op, std::vector{x, factor(2)}, {}, {.any_shape = true});
    ASSERT_TRUE(result.ok()) << result.error().what();
    EXPECT_EQ(values_of(result.value()[0]), Values(2 * n, 3.0f));
  }
  float data[40];
  std::fill_n(data, 40, 0.5f);
  for (int64_t stride : {2, 3, 7}) {
    auto result =
        runtime.run(op, std::vector{Tensor::borrow(data, DType::f32, {2, 3}, {stride * 2, stride}), factor(2)}, {},
                    {.any_shape = true});
    EXPECT_EQ(values_of(result.value()[0]), Values(6, 1.0f));
  }
  EXPECT_EQ(op.authored, 2);  // one dense, one strided
}

TEST(Runtime, OutputsFallInTwoAlignmentClasses) {
  ScaleOp op;
  Runtime runtime(interpreted());
  const Tensor x = floats({4}, {1, 2, 3, 4});
  alignas(64) float memory[36];
  for (int offset : {0, 16, 1, 2, 3}) {
    std::vector<Tensor> y{Tensor::borrow(memory + offset, DType::f32, {4})};
    ASSERT_TRUE(runtime.run_into(op, std::vector{x, factor(2)}, y).ok());
    EXPECT_EQ(values_of(y[0]), (Values{2, 4, 6, 8}));
  }
  EXPECT_EQ(op.authored, 2);
}

TEST(Runtime, AccumulatesIntoGivenOutputsOnly) {
  ScaleOp op;
  Runtime runtime(interpreted());
  const Tensor x = floats({2}, {1, 2});
  std::vector<Tensor> y{floats({2}, {10, 20}), Tensor()};
  ASSERT_TRUE(runtime.run_into(op, std::vector{x, factor(3)}, y, {}, {.accumulate = true}).ok());
  EXPECT_EQ(values_of(y[0]), (Values{13, 26}));
  ASSERT_TRUE(runtime.run_into(op, std::vector{x, factor(3)}, y).ok());
  EXPECT_EQ(values_of(y[0]), (Values{3, 6}));
  expect_refused(runtime.run(op, std::vector{x, factor(3)}, {}, {.accumulate = true}), ErrorCode::invalid_argument,
                 {"run_into"});
}

TEST(Runtime, RefusesOutputsThatItMayNotWrite) {
  ScaleOp op;
  Runtime runtime(interpreted());
  float data[16] = {};
  const Tensor x = Tensor::borrow(data, DType::f32, {2, 2}, {3, 1});  // bytes 0 to 20
  const auto into = [&](std::vector<Tensor> outputs) {
    return runtime.run_into(op, std::vector{x, factor(1)}, outputs);
  };
  const auto at = [&](int offset) { return Tensor::borrow(data + offset, DType::f32, {2, 2}); };
  expect_refused(into({at(4)}), ErrorCode::invalid_argument, {"output 0 (y)", "input 0 (x)"});
  expect_refused(into({at(5), at(8)}), ErrorCode::invalid_argument, {"output 1 (z)", "output 0 (y)"});
  EXPECT_TRUE(into({at(5), at(9)}).ok());
  expect_refused(into({Tensor::empty(DType::f64, {2, 2})}), ErrorCode::invalid_argument, {"float64", "float32"});
  expect_refused(into({Tensor::empty(DType::f32, {4})}), ErrorCode::invalid_argument, {"[4]", "[2,2]"});
  expect_refused(into({Tensor::borrow(data + 5, DType::f32, {2, 2}, {1, 1})}), ErrorCode::invalid_argument,
                 {"output 0 (y)", "overlap"});
  expect_refused(into({Tensor::borrow(static_cast<const void*>(data + 5), DType::f32, {2, 2})}),
                 ErrorCode::invalid_argument, {"read-only"});
  expect_refused(into({at(5), at(9), at(9)}), ErrorCode::invalid_argument, {"3 outputs"});
  expect_refused(into({Tensor(), at(9)}), ErrorCode::invalid_argument, {"y"});
}

TEST(Runtime, ErrorsSayWhatWasWrongAndLeaveItUsable) {
  ScaleOp op;
  LookUpOp look_up;
  Runtime runtime(interpreted());
  const Tensor x = floats({2}, {1, 2});
  expect_refused(runtime.run("NoSuchOp", {}), ErrorCode::unsupported, {"NoSuchOp"});
  expect_refused(runtime.run(op, std::vector{x}), ErrorCode::invalid_argument, {"Scale", "factor"});
  expect_refused(runtime.run(op, std::vector<Tensor>(17, x)), ErrorCode::invalid_argument, {"17"});
  expect_refused(runtime.run(op, std::vector{x, factor(1)}, {}, {.strategy = "magic"}), ErrorCode::invalid_argument,
                 {"magic", "direct, two_loops"});
  op.failures = 1;
  expect_refused(runtime.run(op, std::vector{x, factor(1)}), ErrorCode::compile_failed, {"told to fail"});
  EXPECT_TRUE(runtime.run(op, std::vector{x, factor(1)}).ok());  // the failure was not cached
  const auto indices = [](std::vector<int64_t> values) {
    return Tensor::of(DType::i64, {static_cast<int64_t>(values.size())}, values);
  };
  expect_refused(runtime.run(look_up, std::vector{x, indices({0, 1, -3, 2})}), ErrorCode::out_of_range,
                 {"index[2] is -3"});
  EXPECT_EQ(values_of(runtime.run(look_up, std::vector{x, indices({1, 0, 1, 1})}).value()[0]), (Values{2, 1, 2, 2}));
}

TEST(Runtime, ShapeLikeInputsMayBeStridedAndUnaligned) {
  ScaleOp op;
  Runtime runtime(interpreted());
  alignas(8) char bytes[24] = {};
  const int64_t three = 3;
  std::memcpy(bytes + 3, &three, 8);
  const auto result = runtime.run(op, std::vector{floats({1}, {2}), Tensor::borrow(bytes + 3, DType::i64, {1})});
  EXPECT_EQ(values_of(result.value()[0]), (Values{6}));
}

TEST(Runtime, EmptyTensorsAndTrimmedOutputs) {
  ScaleOp op;
  LookUpOp look_up;
  Runtime runtime(interpreted());
  auto none = runtime.run(op, std::vector{Tensor::borrow(static_cast<void*>(nullptr), DType::f32, {3, 0}), factor(1)});
  ASSERT_TRUE(none.ok()) << none.error().what();
  EXPECT_EQ(none.value()[0].dims(), (Dims{3, 0}));
  const Tensor index = Tensor::of(DType::i64, {2}, std::vector<int64_t>{0, 0});
  EXPECT_EQ(runtime.run(look_up, std::vector{floats({1}, {-5}), index}).value()[0].dims(), (Dims{1}));
  std::vector<Tensor> given{Tensor::empty(DType::f32, {2})};
  ASSERT_TRUE(runtime.run_into(look_up, std::vector{floats({1}, {-5}), index}, given).ok());
  EXPECT_EQ(given[0].dims(), (Dims{1}));
}

}  // namespace
}  // namespace gradloom
