// The runtime's contracts on the reference executor: handles, refusals, and what an error leaves behind.
#include "runtime/runtime.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <limits>

#include "ir/builder.h"
#include "ir/interpret/interpret.h"
#include "ir/passes/passes.h"
#include "ir/text/print.h"
#include "tests/runtime/runtime_ops.h"
#include "tests/support/targets.h"

#if defined(__SSE__)
#include <xmmintrin.h>
#if defined(__GLIBC__)
#include <cfenv>
#endif
#endif

namespace gradloom {
namespace {

using namespace testing;

template <class T>
void expect_refused(const Result<T>& result, ErrorCode code, std::initializer_list<const char*> words) {
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().code(), code) << result.error().what();
  for (const char* word : words)
    EXPECT_NE(std::string(result.error().what()).find(word), std::string::npos)
        << result.error().what() << " lacks " << word;
}

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
  expect_refused(into({Tensor::borrow(data + 5, DType::f32, {2, 2}, {1, 2})}), ErrorCode::invalid_argument, {"dense"});
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
  EXPECT_TRUE(runtime.run(op, std::vector{x, factor(1)}).ok());  // the failure was not kept
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

TEST(Executable, ServesItsShapesAndRefusesOthers) {
  ScaleOp op;
  auto runtime = std::make_unique<Runtime>(interpreted());
  const Tensor x = floats({2}, {1, 2});
  Executable handle = runtime->compile(op, std::vector{x, factor(2)}).value();
  EXPECT_TRUE(handle.report().compiled);
  EXPECT_EQ(handle.report().strategy, "direct");
  runtime.reset();  // the handle lives on
  const std::vector<Tensor> outputs{Tensor::empty(DType::f32, {2}), Tensor::empty(DType::f32, {2})};
  for (int64_t k : {2, 3, 3, 4, 2}) {  // a moving parameter needs no other kernel
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
  EXPECT_EQ(op.authored, 2);  // aligned, and any address
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

// So do they on the elements of a written buffer being apart.
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

#if defined(__SSE__)
TEST(FloatMode, DenormalsAreKeptAndTheCallersModeComesBack) {
  ScaleOp op;
  const float denormal = 1e-40f;
  const unsigned saved = _mm_getcsr();
  for (unsigned mode : {0x8040u | 0x1f80u, 0x1f80u, 0x7f80u}) {  // FTZ and DAZ; the usual one; towards zero
    Runtime runtime(interpreted());
    const Tensor x = floats({2}, {denormal, 1.0f});
    _mm_setcsr(mode);
    auto result = runtime.run(op, std::vector{x, factor(2)});
    const unsigned after = _mm_getcsr();
    _mm_setcsr(saved);
    EXPECT_EQ(after & ~0x3fu, mode & ~0x3fu);
    EXPECT_EQ(values_of(result.value()[0])[0], 2 * denormal);
    EXPECT_NE(values_of(result.value()[0])[0], 0.0f);
  }
}

#if defined(__GLIBC__)
class TemporaryFolder {
 public:
  TemporaryFolder() { path_ = mkdtemp(name_); }
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }
  const std::string& path() const { return path_; }

 private:
  char name_[32] = "/tmp/gradloom_modes_XXXXXX";
  std::string path_;
};

// Every exception that a host can trap, for a scope: what computes in the host's mode then ends the process.
class Trapped {
 public:
  Trapped() { std::feclearexcept(FE_ALL_EXCEPT), feenableexcept(FE_ALL_EXCEPT); }
  ~Trapped() {
    EXPECT_EQ(fegetexcept(), FE_ALL_EXCEPT);
    fedisableexcept(FE_ALL_EXCEPT);
  }
};

TEST(FloatMode, EveryEntryRunsWhileTheHostTrapsExceptions) {
  const Tensor dy = floats({3}, {0.1f, 0.2f, 1e38f}), shape = Tensor::of(DType::i64, {1}, std::vector<int64_t>{2});
  const Tensor indices = Tensor::of(DType::i64, {3}, std::vector<int64_t>{1, 1, 0});
  const std::vector<Tensor> inputs{shape, indices, dy};
  const std::string text =
      "kernel own() { in x: f32[3] out y: f32[3] for i in 0 .. 3 { y[i] = x[i] / 3.0f32 + 0.1f32 } }";
  const TemporaryFolder folder;
  for (const TargetKind target :
       {TargetKind::interpreter, TargetKind::automatic, TargetKind::automatic}) {  // the last finds its code on disk
    const Trapped trapped;
    Runtime runtime({.target = target,
                     .threads = 2,
                     .disk_cache = folder.path() + "/cache",
                     .policy = Policy::generic_first,
                     .specialise_after = 1});
    for (int again = 0; again < 3; ++again) ASSERT_TRUE(runtime.run("GatherGrad", inputs).ok());
    runtime.wait_for_background();
    std::vector<Tensor> outputs{Tensor::empty(DType::f32, {2})};
    ASSERT_TRUE(runtime.run_into("GatherGrad", inputs, outputs).ok());
    EXPECT_EQ(values_of(outputs[0])[1], 0.1f + 0.2f);
    const Executable handle = runtime.compile("GatherGrad", inputs).value();
    ASSERT_TRUE(handle(inputs, outputs).ok());
    ASSERT_TRUE(handle.run_into(inputs, outputs).ok());
    EXPECT_GE(handle.report().build_ms, 0);
    const KernelExecutable own = runtime.compile(ir::parse(text)).value();
    ASSERT_TRUE(own(std::vector{dy, floats({3}, {0, 0, 0})}).ok());
    EXPECT_FALSE(runtime.run("NoSuchOp", inputs).ok());
    ASSERT_TRUE(runtime.to_device(dy).ok());
    ASSERT_TRUE(runtime.to_host(dy).ok());
    ASSERT_TRUE(runtime.synchronize().ok());
    ASSERT_TRUE(runtime.prewarm(load_calls(save_calls(runtime.used_calls())).value()).ok());
    const Stats stats = runtime.stats();
    EXPECT_GT(stats.compiles + stats.disk_hits, 0);
    EXPECT_EQ(runtime.last_report().op, "GatherGrad");
    runtime.clear_cache();
  }
}

TEST(FloatMode, TheTextFormAndTheInterpreterKeepTheirModeToo) {
  const std::string text = "kernel own() { out y: f32[1] y[0] = 0.1f32 / 3.0f32 + 1e-45f32 }";
  const auto result = [&](bool lowered) {
    const ir::Kernel kernel = ir::parse(ir::print(ir::parse(text)));
    float y = 0;
    void* const buffers[] = {&y};
    ir::interpret(lowered ? ir::lower(kernel) : kernel, buffers, {});
    return std::pair(y, ir::constant(DType::f32, 0.1).as<ir::Const>()->bits);
  };
  const auto expected = result(false);
  for (const int rounding : {FE_UPWARD, FE_TOWARDZERO})
    for (const bool lowered : {false, true}) {
      std::fesetround(rounding);
      const auto got = result(lowered);
      std::fesetround(FE_TONEAREST);
      EXPECT_EQ(got, expected) << rounding << lowered;
    }
  const Trapped trapped;
  EXPECT_EQ(result(true), expected);
}
#endif
#endif

}  // namespace
}  // namespace gradloom
