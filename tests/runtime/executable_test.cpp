// Handles to compiled ops and kernels: the calls that they serve and reject.
#include <gtest/gtest.h>

#include <limits>
#include <thread>

#include "gradloom/builder.h"
#include "gradloom/text.h"
#include "tests/runtime/runtime_ops.h"
#include "tests/support/targets.h"

namespace gradloom {
namespace {

using namespace testing;

TEST(Executable, ServesItsShapesAndRefusesOthers) {
  ScaleOp op;
  auto runtime = std::make_unique<Runtime>(interpreted());
  const Tensor x = floats({2}, {1, 2});
  Executable handle = runtime->compile(op, std::vector{x, factor(2)}).value();
  EXPECT_TRUE(handle.report().compiled);
  EXPECT_EQ(handle.report().strategy, "direct");
  runtime.reset();  // the handle outlives the runtime
  const std::vector<Tensor> outputs{Tensor::empty(DType::f32, {2}), Tensor::empty(DType::f32, {2})};
  for (int64_t k : {2, 3, 3, 4, 2}) {  // another parameter value needs no other kernel
    ASSERT_TRUE(handle(std::vector{x, factor(k)}, outputs).ok());
    EXPECT_EQ(values_of(outputs[0]), (Values{1.0f * k, 2.0f * k}));
  }
  EXPECT_EQ(op.authored, 1);
  expect_refused(handle(std::vector{floats({3}, {1, 2, 3}), factor(2)}, outputs), ErrorCode::invalid_argument,
                 {"float32[3]", "compiled for float32[2]"});
  expect_refused(handle(std::vector{x}, outputs), ErrorCode::invalid_argument, {"factor"});
  expect_refused(handle(std::vector{x, factor(2)}, std::vector{outputs[0], Tensor()}), ErrorCode::invalid_argument,
                 {"output 1 (z) is absent"});
  expect_refused(handle(std::vector{x, factor(2)}, std::vector{outputs[0], outputs[0]}), ErrorCode::invalid_argument,
                 {"overlaps"});
  expect_refused(handle(std::vector{outputs[0], factor(2)}, outputs), ErrorCode::invalid_argument,
                 {"overlaps input 0 (x)"});
  EXPECT_TRUE(handle(std::vector{x, factor(2)}, outputs).ok());
  expect_refused(Executable()({}, {}), ErrorCode::invalid_argument, {"empty"});
}

TEST(Executable, UnalignedOutputsAndAnyShape) {
  ScaleOp op;
  Runtime runtime(interpreted());
  const Tensor x = floats({2}, {1, 2});
  Executable handle =
      runtime.compile(op, std::vector{x, factor(2)}, {}, {.any_shape = true, .outputs_wanted = 1}).value();
  alignas(64) float memory[32];
  for (int repeat = 0; repeat < 2; ++repeat) {
    for (int offset : {0, 1, 3}) {
      const Tensor y = Tensor::borrow(memory + offset, DType::f32, {3});
      ASSERT_TRUE(handle(std::vector{floats({3}, {1, 2, 3}), factor(2)}, std::vector{y}).ok());
      EXPECT_EQ(values_of(y), (Values{2, 4, 6}));
    }
  }
  EXPECT_EQ(op.authored, 2);  // one for aligned, one for any addresses
  expect_refused(handle(std::vector{floats({1, 2}, {1, 2}), factor(2)}, std::vector{Tensor::empty(DType::f32, {1, 2})}),
                 ErrorCode::invalid_argument, {"float32[1,2]"});
}

TEST(Executable, TellsTheSizesThatTheKernelFound) {
  const auto ints = [](const std::vector<int64_t>& values) {
    return Tensor::of(DType::i64, {static_cast<int64_t>(values.size())}, values);
  };
  Runtime runtime(interpreted());
  const std::vector<Tensor> inputs{ints({2, 3, 4}), ints({3, 1})};
  const Executable handle = runtime.compile("BroadcastGradientArgs", inputs, {}, {.outputs_wanted = 2}).value();
  const std::vector<Tensor> full{Tensor(), Tensor::empty(DType::i64, {3})};
  for (int call = 0; call < 2; ++call) {
    std::vector<Tensor> outputs = full;
    const auto done = handle.run_into(inputs, outputs);
    ASSERT_TRUE(done.ok()) << done.error().what();
    EXPECT_FALSE(outputs[0].present());
    ASSERT_EQ(to_string(outputs[1].dims()), "[2]");
    EXPECT_EQ(static_cast<const int64_t*>(outputs[1].data())[0], 2);
    EXPECT_EQ(static_cast<const int64_t*>(outputs[1].data())[1], 0);
    EXPECT_EQ(outputs[1].data(), full[1].data());
    expect_refused(handle.run_into(inputs, outputs), ErrorCode::invalid_argument, {"[2]", "[3]"});
  }
  std::vector<Tensor> none;
  expect_refused(Executable().run_into({}, none), ErrorCode::invalid_argument, {"empty"});
}

TEST(Executable, ManyThreadsCallOneHandle) {
  ScaleOp op;
  Runtime runtime(interpreted());
  const Tensor x = floats({2}, {1, 2});
  const Executable handle = runtime.compile(op, std::vector{x, factor(2)}, {}, {.outputs_wanted = 1}).value();
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      alignas(64) float memory[32];
      for (int i = 0; i < 100; ++i) {
        const Tensor y = Tensor::borrow(memory + i % 3, DType::f32, {2});
        EXPECT_TRUE(handle(std::vector{x, factor(t + i % 2)}, std::vector{y}).ok());
        EXPECT_EQ(values_of(y)[1], 2.0f * (t + i % 2));
      }
    });
  }
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(op.authored, 2);
}

ir::Kernel own_kernel() {
  ir::KernelBuilder b("own");
  const ir::Expr n = b.scalar("n", 0, 100);
  const ir::Buffer x = b.input("x", DType::f32, {n}), limit = b.input("limit", DType::f32, {1}),
                   y = b.output("y", DType::f32, {n});
  b.loop("i", 0, n, [&](ir::Expr i) {
    b.check(ir::load(x, {i}) <= ir::load(limit, {0}), i, "x",
            [&] { b.store(y, {i}, ir::load(x, {i}) + ir::load(x, {i})); });
  });
  return b.build();
}

TEST(KernelExecutable, ChecksEveryArgument) {
  Runtime runtime(interpreted());
  auto compiled = runtime.compile(own_kernel());
  ASSERT_TRUE(compiled.ok()) << compiled.error().what();
  const KernelExecutable& kernel = compiled.value();
  const Tensor x = floats({2}, {1, 2}), limit = floats({1}, {9}), y = Tensor::empty(DType::f32, {2});
  const std::vector<int64_t> n{2};
  ASSERT_TRUE(kernel(std::vector{x, limit, y}, n).ok());
  EXPECT_EQ(values_of(y), (Values{2, 4}));
  expect_refused(kernel(std::vector{x, floats({1}, {1}), y}, n), ErrorCode::out_of_range, {"position 1"});
  expect_refused(kernel(std::vector{x, limit, y}), ErrorCode::invalid_argument, {"0 scalars"});
  expect_refused(kernel(std::vector{x, limit, y}, std::vector<int64_t>{3}), ErrorCode::invalid_argument,
                 {"buffer x", "[3]"});
  expect_refused(kernel(std::vector{x, limit, y}, std::vector<int64_t>{-1}), ErrorCode::invalid_argument,
                 {"scalar n is -1; it must be in [0, 100]"});
  expect_refused(kernel(std::vector{x, x, y}, n), ErrorCode::invalid_argument, {"buffer limit", "[1]"});
  expect_refused(kernel(std::vector{x, limit, x}, n), ErrorCode::invalid_argument, {"x and y overlap"});
  expect_refused(kernel(std::vector{x, limit}, n), ErrorCode::invalid_argument, {"2 buffers"});
  expect_refused(kernel(std::vector{Tensor::empty(DType::f64, {2}), limit, y}, n), ErrorCode::invalid_argument,
                 {"f64", "f32"});
  float data[8] = {};
  expect_refused(kernel(std::vector{Tensor::borrow(data, DType::f32, {2}, {3}), limit, y}, n),
                 ErrorCode::invalid_argument, {"dense"});
}

// Proofs rely on the scalars' ranges, so each target's launch enforces them.
TEST(KernelExecutable, ScalarsAreInTheirDeclaredRanges) {
  const ir::Kernel kernel = ir::parse(R"(
kernel ranged(n: i64 in [0, 4], m: i64 in [n, n * 2], u: u64 in [1, 9223372036854775808u64], w: u8 in [, 200], f: f32 in [0, 1]) {
  out y: i64[1]
  y[0] = n + m
})");
  constexpr int64_t half = 0x3f000000, two = 0x40000000, nan = 0x7fc00000,
                    far = std::numeric_limits<int64_t>::min();  // 2^63 as u64
  for (const TargetKind target : all_targets()) {
    Runtime runtime({.target = target, .threads = 1});
    const KernelExecutable compiled = runtime.compile(kernel).value();
    const Tensor y = Tensor::empty(DType::i64, {1});
    const auto call = [&](std::vector<int64_t> scalars) { return compiled(std::vector{y}, scalars); };
    ASSERT_TRUE(call({3, 6, far, 200, half}).ok());
    EXPECT_EQ(static_cast<const int64_t*>(y.data())[0], 9);
    expect_refused(call({5, 6, 1, 0, half}), ErrorCode::invalid_argument, {"scalar n is 5; it must be in [0, 4]"});
    expect_refused(call({3, 7, 1, 0, half}), ErrorCode::invalid_argument,
                   {"scalar m is 7; it must be in [n (3), n * 2 (6)]"});
    expect_refused(call({3, 6, 0, 0, half}), ErrorCode::invalid_argument,
                   {"scalar u is 0; it must be in [1, 9223372036854775808]"});
    expect_refused(call({3, 6, far + 1, 0, half}), ErrorCode::invalid_argument,
                   {"scalar u is 9223372036854775809; it must be in"});
    expect_refused(call({3, 6, 1, 201, half}), ErrorCode::invalid_argument,
                   {"scalar w is 201; it must be at most 200"});
    expect_refused(call({3, 6, 1, 0, two}), ErrorCode::invalid_argument, {"scalar f is 2.0; it must be in [0, 1]"});
    expect_refused(call({3, 6, 1, 0, nan}), ErrorCode::invalid_argument, {"scalar f is nan; it must be in [0, 1]"});
  }
}

// They also rely on distinct addresses of a written buffer's elements.
TEST(KernelExecutable, WrittenBuffersDoNotOverlapThemselves) {
  const ir::Kernel kernel = ir::parse(
      "kernel apart(a: i64, b: i64) { in x: i64[2, 3] strides [a, b] out y: i64[2, 3] strides [a, b] y[0, 0] = x[1, 2] "
      "}");
  alignas(64) int64_t memory[64] = {}, written[64] = {};
  Runtime runtime(interpreted());
  const KernelExecutable compiled = runtime.compile(kernel).value();
  const auto call = [&](int64_t a, int64_t b) {
    return compiled(std::vector{Tensor::borrow(memory + 32, DType::i64, {2, 3}, {a, b}),
                                Tensor::borrow(written + 32, DType::i64, {2, 3}, {a, b})},
                    std::vector<int64_t>{a, b});
  };
  const std::pair<int64_t, int64_t> apart[] = {{3, 1}, {1, 2}, {-3, 1}, {3, 2}, {7, -2}, {3, -1}},
                                    overlapping[] = {{0, 1}, {1, 0}, {1, 1}, {2, 1}, {-2, 1}, {4, 2}};
  for (const auto& [a, b] : apart) EXPECT_TRUE(call(a, b).ok()) << a << " " << b;
  for (const auto& [a, b] : overlapping)
    expect_refused(call(a, b), ErrorCode::invalid_argument, {"buffer y is written and its elements overlap"});
}

TEST(KernelExecutable, AFailedCheckAtTheLargestPositionIsAFailure) {
  ir::KernelBuilder b("last");
  const ir::Buffer x = b.input("x", DType::i64, {4}), y = b.output("y", DType::i64, {4});
  b.loop("i", 0, 4, [&](ir::Expr i) {
    b.check(ir::load(x, {i}) < 9, ir::load(x, {i}), "x", [&] { b.store(y, {i}, ir::load(x, {i})); });
  });
  const ir::Kernel kernel = b.build();
  const int64_t largest = std::numeric_limits<int64_t>::max();
  const auto ints = [](const std::vector<int64_t>& values) { return Tensor::of(DType::i64, {4}, values); };
  const Tensor out = Tensor::empty(DType::i64, {4});
  for (const TargetKind target : {TargetKind::interpreter, TargetKind::automatic}) {
    Runtime runtime({.target = target, .threads = 1});
    const KernelExecutable compiled = runtime.compile(kernel).value();
    EXPECT_TRUE(compiled(std::vector{ints({1, 2, 3, 8}), out}).ok());
    expect_refused(compiled(std::vector{ints({1, 2, largest, 3}), out}), ErrorCode::out_of_range, {"check failed"});
    expect_refused(compiled(std::vector{ints({1, 9, largest, 3}), out}), ErrorCode::out_of_range, {"position 9"});
  }
}

}  // namespace
}  // namespace gradloom
