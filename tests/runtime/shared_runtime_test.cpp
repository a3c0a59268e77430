// The process's shared runtime, and own kernels from text.
#include <gtest/gtest.h>

#include <thread>

#include "gradloom/text.h"
#include "tests/runtime/runtime_ops.h"
#include "tests/support/targets.h"

namespace gradloom {
namespace {

using namespace testing;

TEST(SharedRuntime, IsMadeByItsFirstClient) {
  std::shared_ptr<Runtime> first = shared_runtime(interpreted()).value();
  std::shared_ptr<Runtime> second = shared_runtime({.threads = 7}).value();
  EXPECT_EQ(first, second);
  EXPECT_EQ(second->target_name(), "interpreter");
  first.reset();
  EXPECT_EQ(second->threads(), 2);
  second.reset();  // the last: the next client makes a new one
  expect_refused(shared_runtime({.threads = -1}), ErrorCode::invalid_argument, {"threads is -1"});
  EXPECT_EQ(shared_runtime({.target = TargetKind::interpreter, .threads = 3}).value()->threads(), 3);
}

TEST(SharedRuntime, IsOneForManyThreads) {
  std::vector<std::shared_ptr<Runtime>> got(8);
  std::vector<std::thread> threads;
  for (auto& runtime : got) threads.emplace_back([&] { runtime = shared_runtime(interpreted()).value(); });
  for (std::thread& thread : threads) thread.join();
  for (const auto& runtime : got) EXPECT_EQ(runtime, got[0]);
}

constexpr const char* relu_grad =
    "kernel relu_grad(n: i64 in [0, 1000000]) {\n"
    "  in dy: f32[n]\n"
    "  in x: f32[n]\n"
    "  out dx: f32[n]\n"
    "  for i in 0 .. n {\n"
    "    dx[i] = select(x[i] > 0.0f32, dy[i], 0.0f32)\n"
    "  }\n"
    "}\n";

TEST(CompileText, RunsANestWithATraceOrWithout) {
  for (const TargetKind target : all_targets()) {
    Runtime runtime({.target = target, .threads = 2});
    for (const char* trace : {"", "split i 4\n\n  \nparallel i_o\n"}) {
      if (*trace && target == TargetKind::cuda_host) continue;  // which has no parallel loops
      const auto kernel = runtime.compile_text(relu_grad, trace);
      ASSERT_TRUE(kernel.ok()) << kernel.error().what();
      const Tensor dx = Tensor::empty(DType::f32, {6});
      const auto done = kernel.value()(
          std::vector{floats({6}, {1, 2, 3, 4, 5, 6}), floats({6}, {-1, 0, 1, 2, -3, 4}), dx}, std::vector<int64_t>{6});
      ASSERT_TRUE(done.ok()) << done.error().what();
      EXPECT_EQ(values_of(dx), (Values{0, 0, 3, 4, 0, 6}));
    }
  }
}

TEST(CompileText, NamesWhatIsWrong) {
  Runtime runtime(interpreted());
  expect_refused(runtime.compile_text("kernel k("), ErrorCode::invalid_argument, {"nest: 1:"});
  expect_refused(runtime.compile_text(relu_grad, "fly i"), ErrorCode::invalid_argument, {"trace: ", "\"fly i\""});
  expect_refused(runtime.compile_text(relu_grad, "parallel i\nsplit j 4"), ErrorCode::invalid_argument,
                 {"trace: ", "j"});
}

TEST(Gradient, OfANestIsCompiledOrRefused) {
  const ir::Kernel square = ir::parse(
      "kernel square(n: i64 in [0, 1000]) { in x: f32[n] out y: f32[n] for i in 0 .. n { y[i] = tanh(x[i]) * x[i] } }");
  for (const TargetKind target : all_targets()) {
    Runtime runtime({.target = target, .threads = 2});
    const auto kernel = runtime.gradient(square, {.wanted = {"x"}, .kept = {{"x"}}});
    ASSERT_TRUE(kernel.ok()) << kernel.error().what();
    const Tensor dx = Tensor::empty(DType::f32, {3});
    const auto done = kernel.value()(std::vector{floats({3}, {0, 40, -40}), floats({3}, {1, 2, 3}), dx},
                                     std::vector<int64_t>{3});
    ASSERT_TRUE(done.ok()) << done.error().what();
    EXPECT_EQ(values_of(dx), (Values{0, 2, -3}));
    expect_refused(runtime.gradient(square, {.wanted = {"x"}, .kept = {{"y"}}}), ErrorCode::unsupported,
                   {"kernel square", "needs x"});
    expect_refused(runtime.gradient(square, {.wanted = {"y"}}), ErrorCode::invalid_argument, {"y", "not an input"});
  }
}

}  // namespace
}  // namespace gradloom
