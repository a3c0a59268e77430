// What a kernel for a GPU is told to cost: cases of a loop's variable.
#include "cli/bench/gpu_predict.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "ir/text/print.h"

namespace gradloom {
namespace {

// y[t] += x[t] by each thread in each of 10 turns, and again where `condition` holds.
cli::GpuPrediction of(const std::string& condition, const std::string& otherwise = "") {
  const ir::Kernel kernel = ir::parse(fmt::format(R"(kernel cases() {{
  in x: f32[512]
  inout y: f32[512]
  for b in 0 .. 1 grid {{
    for turn in 0 .. 10 {{
      for t in 0 .. 512 thread {{
        y[t] += x[t]
        if {} {{
          y[t] += x[t]
          y[t] += x[t]
        }} {}
      }}
    }}
  }}
}})",
                                                  condition, otherwise));
  return cli::predict_gpu(kernel).at(0);
}

TEST(GpuPredict, ACaseCountsAsOftenAsItHolds) {
  const cli::GpuPrediction never = of("turn < 0"), always = of("turn < 10"), thrice = of("turn < 3"),
                           but_once = of("turn > 0");
  EXPECT_EQ(thrice.accessed_bytes - never.accessed_bytes, 0.3 * (always.accessed_bytes - never.accessed_bytes));
  EXPECT_EQ(but_once.accessed_bytes - never.accessed_bytes, 0.9 * (always.accessed_bytes - never.accessed_bytes));
  EXPECT_EQ(thrice.steps - never.steps, 0.3 * (always.steps - never.steps));
  EXPECT_EQ(but_once.steps - never.steps, 0.9 * (always.steps - never.steps));
  const cli::GpuPrediction other = of("turn < 3", "else { y[t] += x[t] }");
  EXPECT_EQ(other.steps - thrice.steps, 0.35 * (always.steps - never.steps));
}

// Threads side by side: what some of them do takes as long as if all did it.
TEST(GpuPredict, AllThreadsWaitForSome) {
  const cli::GpuPrediction none = of("t < 0"), all = of("t < 512"), some = of("t < 64");
  EXPECT_EQ(some.accessed_bytes - none.accessed_bytes, (all.accessed_bytes - none.accessed_bytes) / 8);
  EXPECT_EQ(some.steps, all.steps);
  EXPECT_LT(none.steps, all.steps);
}

}  // namespace
}  // namespace gradloom
