// The cache of kernels in memory, on the reference executor: builds under contention, failed ones, its budget,
// clearing.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "gradloom/runtime.h"
#include "tests/runtime/runtime_ops.h"

namespace gradloom {
namespace {

using namespace testing;

TEST(Cache, OneBuildAKeyUnderContention) {
  ScaleOp op;
  op.author_ms = 30;
  Runtime runtime(interpreted());
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 20; ++i)
        EXPECT_EQ(values_of(runtime.run(op, std::vector{floats({2}, {1, 2}), factor(i)}).value()[0])[1], 2.0f * i);
    });
  }
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(op.authored, 1);
  EXPECT_EQ(runtime.stats().launches, 160);
  EXPECT_EQ(runtime.stats().hits + runtime.stats().misses, 160);
}

TEST(Cache, AFailedBuildIsToldToAllWhoWaitAndForgotten) {
  ScaleOp op;
  op.author_ms = 50;
  op.failures = 1;
  Runtime runtime(interpreted());
  std::atomic<int> failed{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] { failed += !runtime.run(op, std::vector{floats({2}, {1, 2}), factor(2)}).ok(); });
  }
  for (std::thread& t : threads) t.join();
  EXPECT_GE(failed, 1);
  EXPECT_LE(op.authored, 1 + (4 - failed));
  EXPECT_TRUE(runtime.run(op, std::vector{floats({2}, {1, 2}), factor(2)}).ok());
}

TEST(Cache, StaysWithinItsBudgetAndKeepsWhatIsUsed) {
  ScaleOp op;
  RuntimeOptions options = interpreted();
  options.cache_bytes = 200 << 10;
  Runtime runtime(options);
  const auto run = [&](int64_t n) {
    return runtime.run(op, std::vector{floats({n}, std::vector<float>(n)), factor(2)}).ok();
  };
  for (int64_t n = 1; n <= 60; ++n) {
    ASSERT_TRUE(run(1000));  // always in use
    ASSERT_TRUE(run(n));
  }
  const Stats stats = runtime.stats();
  EXPECT_GT(stats.evictions, 30);
  EXPECT_LT(stats.entries, 20);
  EXPECT_EQ(stats.compiles, 61);
  EXPECT_EQ(stats.entries + stats.evictions, 61);
  ASSERT_TRUE(run(1));
  EXPECT_EQ(op.authored, 62);
}

TEST(Cache, WithoutRoomEverythingStillRuns) {
  ScaleOp op;
  RuntimeOptions options = interpreted();
  options.cache_bytes = 0;
  Runtime runtime(options);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(runtime.run(op, std::vector{floats({2}, {1, 2}), factor(2)}).ok());
  EXPECT_EQ(op.authored, 3);
  EXPECT_EQ(runtime.stats().entries, 0);
}

TEST(Cache, ClearForgetsAndHandlesKeepTheirKernel) {
  ScaleOp op;
  Runtime runtime(interpreted());
  const std::vector<Tensor> inputs{floats({2}, {1, 2}), factor(2)};
  Executable handle = runtime.compile(op, inputs, {}, {.outputs_wanted = 1}).value();
  runtime.clear_cache();
  EXPECT_EQ(runtime.stats().entries, 0);
  const std::vector<Tensor> outputs{Tensor::empty(DType::f32, {2})};
  EXPECT_TRUE(handle(inputs, outputs).ok());
  EXPECT_EQ(values_of(outputs[0]), (Values{2, 4}));
  EXPECT_EQ(op.authored, 1);
  EXPECT_TRUE(runtime.run(op, inputs, {}, {.outputs_wanted = 1}).ok());
  EXPECT_EQ(op.authored, 2);  // although the handle still has one
}

}  // namespace
}  // namespace gradloom
