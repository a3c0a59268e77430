// generic_first: no stall, few compiles, the same bits; and prewarmed kernels.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <thread>

#include "gradloom/runtime.h"
#include "runtime/diagnose/log.h"
#include "runtime/generic_first/hot_shapes.h"
#include "tests/runtime/runtime_ops.h"

namespace gradloom {
namespace {

// GatherGrad on a distinct shape for each n.
std::vector<Tensor> shape(int64_t n, int64_t width = 8) {
  std::vector<int64_t> indices;
  std::vector<float> values;
  for (int64_t i = 0; i < 2 * n; ++i) {
    indices.push_back(i * 5 % (n + 1));
    for (int64_t c = 0; c < width; ++c) values.push_back(1.0f / static_cast<float>(3 + (i * 31 + c * 7) % 97));
  }
  return {Tensor::of(DType::i64, {2}, std::vector<int64_t>{n + 1, width}), Tensor::of(DType::i64, {2 * n}, indices),
          Tensor::of(DType::f32, {2 * n, width}, values)};
}

std::vector<float> run(Runtime& runtime, const std::vector<Tensor>& inputs, const RunOptions& options = {}) {
  auto result = runtime.run("GatherGrad", inputs, {}, options);
  if (!result) throw std::runtime_error(result.error().what());
  const Tensor& t = result.value()[0];
  return {static_cast<const float*>(t.data()), static_cast<const float*>(t.data()) + t.elements()};
}

RuntimeOptions generic_first() { return {.threads = 1, .policy = Policy::generic_first}; }

TEST(GenericFirst, AHotShapeGetsItsKernelAndNoBitChanges) {
  Runtime specialised({.threads = 1}), runtime(generic_first());
  const std::vector<Tensor> inputs = shape(20);
  const std::vector<float> expected = run(specialised, inputs);
  for (int i = 0; i < 1000; ++i) ASSERT_EQ(run(runtime, inputs), expected) << i;
  runtime.wait_for_background();
  EXPECT_EQ(run(runtime, inputs), expected);
  EXPECT_FALSE(runtime.last_report().any_shape);
  const Stats stats = runtime.stats();
  EXPECT_EQ(stats.specialised, 1);
  EXPECT_EQ(stats.live_specialisations, 1);
  EXPECT_EQ(stats.specialise_refused, 0);
  EXPECT_EQ(stats.compiles, 2);
  EXPECT_GE(stats.generic_calls, 32);
  EXPECT_LT(stats.generic_calls, 1001);
}

TEST(GenericFirst, ManyShapesCostAHandfulOfCompiles) {
  Runtime runtime(generic_first());
  for (int round = 0; round < 3; ++round) {
    for (int64_t n = 1; n <= 500; ++n) run(runtime, shape(n));
  }
  runtime.wait_for_background();
  const int64_t compiles = runtime.stats().compiles;
  EXPECT_LE(compiles, 4);  // one per strategy
  EXPECT_EQ(runtime.stats().specialised, 0);
  EXPECT_EQ(runtime.stats().generic_calls, 1500);
  // Six hot shapes; at most four have kernels at a time.
  for (int64_t n : {10, 20, 30, 40, 50, 60}) {
    for (int i = 0; i < 1000; ++i) run(runtime, shape(n));
    runtime.wait_for_background();
    EXPECT_LE(runtime.stats().live_specialisations, 4);
  }
  EXPECT_GE(runtime.stats().specialised, 4);
  EXPECT_LE(runtime.stats().compiles, compiles + 6);
}

TEST(GenericFirst, AShapeThatComesFarMoreOftenTakesAPlace) {
  RuntimeOptions options = generic_first();
  options.specialisations = 1;
  Runtime runtime(options);
  const auto calls = [&](int64_t n, int count) {
    const std::vector<Tensor> inputs = shape(n);
    for (int i = 0; i < count; ++i) run(runtime, inputs);
    runtime.wait_for_background();
    run(runtime, inputs);
    return !runtime.last_report().any_shape;
  };
  EXPECT_TRUE(calls(5, 100));
  EXPECT_TRUE(calls(5, 300));
  EXPECT_FALSE(calls(6, 100));
  EXPECT_TRUE(calls(6, 1000));
  EXPECT_FALSE(calls(5, 1));
  EXPECT_EQ(runtime.stats().live_specialisations, 1);
}

TEST(GenericFirst, AnotherStrategysKernelSparesTheWait) {
  Runtime runtime(generic_first());
  run(runtime, shape(3));
  const int64_t after_first = runtime.stats().compiles;
  EXPECT_EQ(after_first, 1);
  for (int64_t n : {1, 50, 700}) {
    run(runtime, shape(n));
    EXPECT_FALSE(runtime.last_report().compiled) << n;
  }
}

// Its specialised kernel adds one more, to simulate a miscompiled one.
class WrongOp final : public Op {
 public:
  explicit WrongOp(bool wrong)
      : Op({.name = "Wrong",
            .doc = "y = x, or not",
            .inputs = {{.name = "x", .dtypes = {DType::f32}}},
            .outputs = {{.name = "y", .dtypes = {DType::f32}}}},
           {{.name = "direct",
             .author = [wrong](KernelFrame& frame, const ir::Target&) { return author(frame, wrong); }}}) {}

 private:
  Plan plan(const Request& request) const override {
    const Operand& x = request.input(0);
    Plan plan;
    plan.outputs.push_back({.dtype = x.dtype, .dims = x.dims});
    plan.views.push_back({.index = 0, .dtype = x.dtype, .dims = x.dims, .strides = x.strides});
    plan.views.push_back(
        {.output = true, .index = 0, .dtype = x.dtype, .dims = x.dims, .strides = dense_strides(x.dims)});
    return plan;
  }
  static ScheduleNest author(KernelFrame& frame, bool wrong) {
    const ir::Buffer x = frame.view(0, "x"), y = frame.view(1, "y");
    const float more = wrong && !frame.any_shape() ? 1e-6f : 0.0f;
    frame.builder.loops("i", x->dims, [&](const std::vector<ir::Expr>& i) {
      frame.builder.store(y, i, ir::load(x, i) + ir::constant(DType::f32, more));
    });
    return {};
  }
};

TEST(GenericFirst, AKernelThatGivesOtherBitsIsNotSwappedIn) {
  for (const bool wrong : {false, true}) {
    std::string log;
    set_log_sink([&](LogLevel level, std::string_view message) {
      if (level <= LogLevel::error) log += message;
    });
    const WrongOp op(wrong);
    {
      Runtime runtime(generic_first());
      const Tensor x = Tensor::of(DType::f32, {3}, std::vector<float>{1, 2, 3});
      for (int i = 0; i < 200; ++i) ASSERT_TRUE(runtime.run(op, std::vector{x}).ok());
      runtime.wait_for_background();
      const Tensor y = runtime.run(op, std::vector{x}).value()[0];
      EXPECT_EQ(static_cast<const float*>(y.data())[0], 1);
      EXPECT_EQ(runtime.last_report().any_shape, wrong);
      EXPECT_EQ(runtime.stats().specialise_refused, wrong);  // once: it is not retried
      EXPECT_EQ(runtime.stats().specialised, !wrong);
    }
    EXPECT_EQ(log.find("output 0 differs") != std::string::npos, wrong) << log;
    set_log_sink({});
  }
}

TEST(GenericFirst, StridedAccumulatingAndUnalignedCallsAreSpecialisedToo) {
  RuntimeOptions options = generic_first();
  options.specialise_after = 4;
  Runtime runtime(options);
  const testing::ScaleOp op;
  float data[64];
  for (int i = 0; i < 64; ++i) data[i] = static_cast<float>(i);
  alignas(64) float memory[33] = {};
  const Tensor factor = Tensor::of(DType::i64, {1}, std::vector<int64_t>{2});
  const Tensor x = Tensor::borrow(static_cast<const void*>(data + 30), DType::f32, {3, 2}, {-5, 2});
  std::vector<Tensor> y{Tensor::borrow(memory + 1, DType::f32, {3, 2})};
  for (int i = 0; i < 40; ++i) {
    ASSERT_TRUE(runtime.run_into(op, std::vector{x, factor}, y, {}, {.accumulate = true}).ok());
    if (i % 8 == 7) runtime.wait_for_background();
  }
  EXPECT_EQ(memory[1], 40 * 60.0f);
  EXPECT_EQ(memory[6], 40 * 2 * 22.0f);
  EXPECT_EQ(runtime.stats().specialised, 1);
}

TEST(GenericFirst, ManyThreadsWhileKernelsAreSwapped) {
  RuntimeOptions options = generic_first();
  options.specialise_after = 4;
  options.specialisations = 2;
  options.compile_threads = 2;
  Runtime reference({.threads = 1});
  std::vector<std::vector<Tensor>> inputs;
  std::vector<std::vector<float>> expected;
  for (int64_t n = 1; n <= 8; ++n) {
    inputs.push_back(shape(n));
    expected.push_back(run(reference, inputs.back()));
  }
  Runtime runtime(options);
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937 random(t);
      for (int i = 0; i < 2000; ++i) {
        const size_t k = i < 1000 ? random() % 8 : random() % 2 + static_cast<size_t>(t);
        wrong += run(runtime, inputs[k]) != expected[k];
        if (i % 500 == 250) runtime.clear_cache();
      }
    });
  }
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(wrong, 0);
  runtime.wait_for_background();
  EXPECT_LE(runtime.stats().live_specialisations, 2 * 3);  // two per any-shape kernel, one of these per strategy
  EXPECT_EQ(runtime.stats().specialise_refused, 0);
}

TEST(GenericFirst, ARuntimeGoesWhileItCompiles) {
  for (int i = 0; i < 5; ++i) {
    RuntimeOptions options = generic_first();
    options.specialise_after = 1;
    Runtime runtime(options);
    for (int64_t n = 1; n <= 10; ++n) run(runtime, shape(n));
  }
}

TEST(HotShapes, CountKeepAndHalve) {
  HotShapes shapes;
  EXPECT_EQ(shapes.calls(5), 0u);
  for (uint32_t i = 1; i <= 10; ++i) EXPECT_EQ(shapes.count(5), i);
  shapes.set_state(5, HotShapes::ready);
  for (uint64_t h = 1; h <= 20; ++h) shapes.count(5 + h * 1024);  // the other slots of its set
  EXPECT_EQ(shapes.calls(5), 10u);
  EXPECT_EQ(shapes.state(5), HotShapes::ready);
  shapes.halve();
  EXPECT_EQ(shapes.calls(5), 5u);
}

TEST(Prewarm, MakesTheKernelsOfAnEarlierJobReady) {
  std::string saved;
  {
    Runtime runtime({.threads = 1});
    for (int64_t n : {2, 3, 4}) run(runtime, shape(n));
    run(runtime, shape(9), {.any_shape = true});
    const std::vector<Tensor> slice{
        Tensor::of(DType::f32, {2}, std::vector<float>{1, 2}), Tensor::of(DType::i64, {1}, std::vector<int64_t>{4}),
        Tensor::of(DType::i64, {1}, std::vector<int64_t>{1}), Tensor::of(DType::i64, {1}, std::vector<int64_t>{3})};
    ASSERT_TRUE(runtime.run("SliceGrad", slice).ok());
    ASSERT_TRUE(runtime.compile("GatherGrad", shape(5)).ok());
    EXPECT_EQ(runtime.used_calls().size(), 6u);
    saved = save_calls(runtime.used_calls());
  }
  const auto calls = load_calls(saved);
  ASSERT_TRUE(calls.ok()) << calls.error().what();
  Runtime runtime({.threads = 1});
  const PrewarmReport report = runtime.prewarm(calls.value()).value();
  EXPECT_EQ(report.ready, 6);
  EXPECT_EQ(report.compiled, 6);
  EXPECT_EQ(report.failed, 0) << report.first_failure;
  for (int64_t n : {2, 3, 4, 5}) {
    run(runtime, shape(n));
    EXPECT_FALSE(runtime.last_report().compiled) << n;
  }
  run(runtime, shape(30), {.any_shape = true});
  EXPECT_FALSE(runtime.last_report().compiled);
}

TEST(Prewarm, RefusesWhatIsDamagedAndGoesOnAfterWhatFails) {
  Runtime runtime({.threads = 1});
  run(runtime, shape(2));
  std::vector<CallKey> calls = runtime.used_calls();
  const std::string saved = save_calls(calls);
  for (size_t i = 0; i < saved.size(); ++i) {
    std::string torn = saved;
    torn[i] = static_cast<char>(torn[i] ^ 4);
    ASSERT_FALSE(load_calls(torn).ok()) << i;
    ASSERT_FALSE(load_calls(saved.substr(0, i)).ok()) << i;
  }
  std::vector<CallKey> bad(7, calls[0]);
  bad[0].op = "NoSuchOp";
  bad[1].inputs[0].values.resize(3);
  bad[2].inputs[2].strides = {};
  bad[3].inputs[0].dims = {int64_t{1} << 62, 8};
  bad[4].inputs.resize(40);
  bad[5].options.strategy = "none";
  bad[6].output_alignment = 3;
  bad.push_back(calls[0]);
  const PrewarmReport report = runtime.prewarm(bad).value();
  EXPECT_EQ(report.failed, 7);
  EXPECT_EQ(report.ready, 1);
  EXPECT_NE(report.first_failure.find("NoSuchOp"), std::string::npos);
  for (const int64_t alignment : {int64_t{0}, int64_t{-64}, int64_t{48}, int64_t{1} << 40}) {
    calls[0].output_alignment = alignment;
    const PrewarmReport refused = runtime.prewarm(calls).value();
    EXPECT_EQ(refused.first_failure,
              fmt::format("GatherGrad: outputs are aligned to {} bytes, expected 1 or 64", alignment));
  }
}

// A list with a valid checksum that save_calls did not write.
TEST(Prewarm, RefusalsNameTheCallAndItsMember) {
  Runtime runtime({.threads = 1});
  run(runtime, shape(2), {.any_shape = true});
  std::vector<CallKey> calls(3, runtime.used_calls().at(0));
  const auto refusal = [&](const CallKey& second) {
    calls[1] = second;
    const auto loaded = load_calls(save_calls(calls));
    return loaded.ok() ? "no error" : std::string(loaded.error().what());
  };
  CallKey bad = calls[0];
  EXPECT_EQ(refusal(bad), "no error");
  bad.output_alignment = 3;
  EXPECT_EQ(refusal(bad),
            "saved calls: call 2 of 3: output_alignment: GatherGrad: outputs are aligned to 3 bytes, expected 1 or 64");
  bad = calls[0];
  bad.options.determinism = static_cast<Determinism>(9);
  EXPECT_EQ(refusal(bad), "saved calls: call 2 of 3: determinism: level 9 is none, expected 0 to 2");
  bad = calls[0];
  bad.inputs[1].dtype = static_cast<DType>(77);
  EXPECT_EQ(refusal(bad), "saved calls: call 2 of 3: inputs[1]: dtype 77 is none, expected 0 to 12");
}

}  // namespace
}  // namespace gradloom
