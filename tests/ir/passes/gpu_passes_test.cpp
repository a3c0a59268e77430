// Lowering for a GPU: launches from what is sequential, checks that guard them, scratch; before == after for the
// interpreter.
#include <gtest/gtest.h>

#include <fstream>

#include "ir/analysis/gpu_form.h"
#include "ir/analysis/verify.h"
#include "ir/passes/passes.h"
#include "tests/support/schedule_support.h"

namespace gradloom::ir {
namespace {

Kernel in_blocks(const char* text) {
  const Kernel before = parse(text);
  std::vector<std::string> dumped;
  const Kernel after = lower(before, {.dump = [&](const std::string& pass, const Kernel&) { dumped.push_back(pass); },
                                      .gpu = true,
                                      .shared_bytes = 1 << 10});
  EXPECT_EQ(dumped.front(), "drop_prefetches");
  EXPECT_EQ(dumped.back(), "place_buffers");
  verify(after, Stage::lowered);
  EXPECT_EQ(gpu_misfit(after), "");
  EXPECT_TRUE(is_gpu(after));
  return after;
}

std::string text_file(const char* name) {
  std::ifstream file(std::string(GRADLOOM_TEST_DIR "/text/") + name);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(GpuPasses, ASequentialKernelIsOneBlock) {
  const char* text =
      "kernel k() {\n in x: f32[8]\n out y: f32[8]\n y[0] = x[0]\n for i in 1 .. 8 {\n y[i] = y[i - 1] + x[i]\n }\n}";
  const Kernel after = in_blocks(text);
  EXPECT_EQ(print(after.body),
            "for once in 0 .. 1 grid {\n  y[0] = x[0]\n  for i in 1 .. +7 {\n    y[i] = y[i - 1] + x[i]\n  }\n}\n");
  expect_same(parse(text), after);
}

TEST(GpuPasses, TheTextFilesKeepTheirResults) {
  for (const char* name : {"form_launches.loop", "place_buffers.loop"})
    for (int64_t n : {1, 31, 33, 100})
      expect_same(parse(text_file(name)), in_blocks(text_file(name).c_str()), {{"n", n}});
}

TEST(GpuPasses, PrefetchesGo) {
  const Kernel after = in_blocks(
      "kernel k() {\n in x: f32[64]\n out y: f32[64]\n for b in 0 .. 2 grid {\n for j in 0 .. 32 thread {\n"
      "evaluate prefetch(x[b * 32 + j + 8], 1)\n y[b * 32 + j] = x[b * 32 + j]\n }\n }\n}");
  EXPECT_EQ(print(after.body),
            "for b in 0 .. 2 grid {\n  for j in 0 .. 32 thread {\n    y[b * 32 + j] = x[b * 32 + j]\n  }\n}\n");
}

TEST(GpuPasses, AFailedCheckGuardsEveryLaunch) {
  const char* text = R"(kernel k() {
  in x: f32[64]
  in n: i64[1]
  out y: f32[64]
  out z: f32[1]
  check n[0] < 3 at 7 "n" {
    for b in 0 .. 2 grid {
      for j in 0 .. 32 thread {
        y[b * 32 + j] = x[b * 32 + j]
      }
    }
    z[0] = x[n[0] + 3]
  }
})";
  expect_same(parse(text), in_blocks(text));
}

TEST(GpuPasses, ScratchOfAnUnknownSizeIsRefused) {
  const Kernel kernel = parse(
      "kernel k() {\n in n: i64[2]\n out y: i64[2]\n for b in 0 .. 2 grid {\n let m = n[b]\n alloc a: i64[m]\n a[0] = "
      "b\n y[b] = a[0]\n }\n}");
  try {
    place_buffers(kernel, 1024);
    FAIL() << "not refused";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::unsupported);
    EXPECT_STREQ(error.what(), "place_buffers: nothing outside the launch bounds the size of buffer a");
  }
}

}  // namespace
}  // namespace gradloom::ir
