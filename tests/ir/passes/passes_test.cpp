// Properties of passes that no text form expresses: their order, and that they terminate. The effect of each on a
// kernel is in tests/text/passes.
#include "ir/passes/passes.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "gradloom/text.h"

namespace gradloom::ir {
namespace {

// Each let uses the previous one twice: its facts are derived once, and no lane repeats a chain of loads.
TEST(SplitUpdates, LongChainsOfLets) {
  for (const char* next : {"min(NAME, NAME)", "x[NAME, NAME]"}) {
    std::string text =
        "kernel k() {\n in x: i64[4, 4] in [0, 3]\n in dy: f32[4]\n inout acc: f32[4]\n let a0: i64x4 = x[ramp(0, 1, "
        "4), ramp(0, 1, 4)]\n";
    for (int i = 1; i < 100; ++i) {
      std::string value = next;
      for (size_t at; (at = value.find("NAME")) != std::string::npos;) value.replace(at, 4, fmt::format("a{}", i - 1));
      text += fmt::format("let a{}: i64x4 = {}\n", i, value);
    }
    text += "check a99 >= broadcast(0, 4) at ramp(0, 1, 4) \"x\" {\n acc[a99] += dy[ramp(0, 1, 4)]\n }\n}";
    const Kernel kernel = parse(text);
    EXPECT_EQ(print(scalarize_scatters(kernel, false)), print(kernel));
  }
}

TEST(Lower, RunsItsPassesInOrder) {
  const auto passes_of = [](const char* text, LowerOptions options) {
    std::vector<std::string> dumped;
    PassTimes times;
    options.dump = [&](const std::string& pass, const Kernel&) { dumped.push_back(pass); };
    options.times = &times;
    lower(parse(text), options);
    EXPECT_EQ(times.size(), dumped.size());
    return dumped;
  };
  using Names = std::vector<std::string>;
  const char* serial = "kernel k() { out y: f32[8] for i in 0 .. 8 { y[i] = 0.0f32 } }";
  const Names for_gpu{"expand_reductions", "expand_math", "drop_prefetches",   "simplify",         "vectorize",
                      "unroll",        "simplify",          "interleave_stores", "demote_registers", "outline_kernels",
                      "place_buffers", "pair_fragments",    "order_lanes",       "insert_barriers"};
  EXPECT_EQ(passes_of(serial, {}),
            (Names{"expand_reductions", "expand_math", "simplify", "vectorize", "unroll", "simplify", "transpose_loads",
                   "scalarize_scatters", "interleave_stores", "demote_registers"}));
  EXPECT_EQ(passes_of(serial, {.gpu = true}), for_gpu);
  EXPECT_EQ(passes_of("kernel k() { out y: f32[8] for i in 0 .. 8 grid { y[i] = 0.0f32 } }", {}), for_gpu);
}

}  // namespace
}  // namespace gradloom::ir
