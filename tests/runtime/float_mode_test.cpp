// The CPU's floating-point mode: every entry point sets the library's and restores the caller's.
#include <gtest/gtest.h>

#include <filesystem>

#include "gradloom/text.h"
#include "ir/interpret/interpret.h"
#include "ir/passes/passes.h"
#include "tests/runtime/runtime_ops.h"

#if defined(__SSE__)
#include <xmmintrin.h>
#if defined(__GLIBC__)
#include <cfenv>
#endif
#endif

namespace gradloom {
namespace {

using namespace testing;

#if defined(__SSE__)
TEST(FloatMode, DenormalsAreKeptAndTheCallersModeComesBack) {
  ScaleOp op;
  const float denormal = 1e-40f;
  const unsigned saved = _mm_getcsr();
  for (unsigned mode : {0x8040u | 0x1f80u, 0x1f80u, 0x7f80u}) {  // FTZ and DAZ; the default; rounding towards zero
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

// Unmasks every exception that a host can trap, for a scope: code that computes in the host's mode then ends the
// process.
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
