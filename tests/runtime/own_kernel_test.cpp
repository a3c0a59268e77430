// Kernels of an embedder's own have what ops have: reports, statistics, reuse in memory and on disk, named checks.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "gradloom/text.h"
#include "tests/support/warm_cache.h"

namespace gradloom {
namespace {

using namespace testing;

constexpr const char* twice =
    "kernel twice() {\n  in x: f32[4]\n  out y: f32[4]\n  for i in 0 .. 4 {\n    y[i] = x[i] + x[i]\n  }\n}\n";

bool doubles(const KernelExecutable& kernel) {
  const Tensor x = Tensor::of(DType::f32, {4}, std::vector<float>{1, 2, 3, 4}), y = Tensor::empty(DType::f32, {4});
  if (!kernel(std::vector{x, y})) return false;
  const auto* values = static_cast<const float*>(y.data());
  return values[0] == 2 && values[3] == 8;
}

class OwnKernelTest : public WarmCacheTest {};

TEST_F(OwnKernelTest, IsReusedAndCountedAndReported) {
  RuntimeOptions o = options();
  Runtime runtime(o);
  const KernelExecutable first = runtime.compile(ir::parse(twice)).value();
  EXPECT_EQ(first.report().op, "twice");
  EXPECT_EQ(first.report().strategy, "own");
  EXPECT_EQ(first.report().target, runtime.target_name());
  EXPECT_TRUE(first.report().compiled);
  EXPECT_EQ(runtime.last_report().op, "twice");
  EXPECT_EQ(runtime.stats().misses, 1);
  EXPECT_EQ(runtime.stats().hits, 0);
  EXPECT_EQ(runtime.stats().entries, 1);

  const KernelExecutable second = runtime.compile(ir::parse(twice)).value();
  EXPECT_FALSE(second.report().compiled);
  EXPECT_EQ(runtime.stats().hits, 1);
  EXPECT_EQ(runtime.stats().misses, 1);
  EXPECT_EQ(runtime.stats().compiles + runtime.stats().disk_hits, 1);
  // Another body, another name, another option: other kernels.
  std::string other = twice;
  other.replace(other.find("+ x[i]"), 6, "* x[i]");
  EXPECT_FALSE(doubles(runtime.compile(ir::parse(other)).value()));
  EXPECT_EQ(runtime.stats().misses, 2);
  ASSERT_TRUE(runtime.compile(ir::parse(twice), {.default_schedule = false}));
  EXPECT_EQ(runtime.stats().misses, 3);

  runtime.clear_cache();
  EXPECT_TRUE(doubles(first) && doubles(second));  // a handle keeps its code
  EXPECT_TRUE(doubles(runtime.compile(ir::parse(twice)).value()));
  EXPECT_EQ(KernelExecutable().report().op, "");
}

TEST_F(OwnKernelTest, ServesOneCompileToManyThreads) {
  Runtime runtime(options());
  std::vector<std::thread> threads;
  std::atomic<int> right{0};
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] { right += doubles(runtime.compile(ir::parse(twice)).value()); });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(right, 4);
  EXPECT_EQ(runtime.stats().entries, 1);
  EXPECT_EQ(runtime.stats().hits + runtime.stats().misses, 4);
}

#ifdef GRADLOOM_WITH_LLVM
TEST_F(OwnKernelTest, IsFoundOnDiskByItsText) {
  { ASSERT_TRUE(Runtime(options()).compile(ir::parse(twice))); }
  EXPECT_EQ(files("i-").size(), 1u);
  Runtime runtime(options());
  const KernelExecutable kernel = runtime.compile(ir::parse(twice)).value();
  EXPECT_TRUE(doubles(kernel));
  EXPECT_TRUE(kernel.report().from_disk);
  EXPECT_EQ(kernel.report().op, "twice");
  EXPECT_EQ(runtime.stats().disk_hits, 1);
  EXPECT_EQ(runtime.stats().compiles, 0);
  EXPECT_TRUE(log_.empty()) << log_;
}
#endif

TEST_F(OwnKernelTest, AFailedCheckNamesItsArgument) {
  for (const auto& [second, named] : {std::pair{"rows", "a check failed at position 2 of rows"},
                                      {"columns", "a check failed at position 2 of rows or columns"}}) {
    const std::string text =
        "kernel pick() {\n  in x: f32[4]\n  in rows: i64[3]\n  in columns: i64[3]\n  out y: f32[3]\n"
        "  for i in 0 .. 3 {\n"
        "    let r = rows[i]\n"
        "    check r >= 0 & r < 4 at i \"rows\" {\n"
        "      let c = columns[i]\n"
        "      check c >= 0 & c < 4 at i \"" +
        std::string(second) +
        "\" {\n"
        "        y[i] = x[r] + x[c]\n"
        "      }\n    }\n  }\n}\n";
    for (const TargetKind target : {TargetKind::interpreter, TargetKind::automatic}) {
      RuntimeOptions o = options();
      o.target = target;
      Runtime runtime(o);
      const KernelExecutable kernel = runtime.compile(ir::parse(text)).value();
      const Tensor x = Tensor::of(DType::f32, {4}, std::vector<float>{1, 2, 3, 4}), y = Tensor::empty(DType::f32, {3});
      const auto done = kernel(std::vector{x, Tensor::of(DType::i64, {3}, std::vector<int64_t>{0, 1, 4}),
                                           Tensor::of(DType::i64, {3}, std::vector<int64_t>{0, 1, 2}), y});
      ASSERT_FALSE(done);
      EXPECT_EQ(done.error().code(), ErrorCode::out_of_range);
      EXPECT_EQ(std::string(done.error().what()), "kernel pick: " + std::string(named));
    }
  }
}

}  // namespace
}  // namespace gradloom
