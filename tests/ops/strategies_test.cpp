// A strategy whose schedule or lowering is refused falls back to the next, with a line in the log and a counter;
// requested by name, it is an error.
#include <gtest/gtest.h>

#include "gradloom/op.h"
#include "gradloom/refusal.h"
#include "gradloom/runtime.h"
#include "runtime/diagnose/log.h"
#include "tests/support/targets.h"

namespace gradloom {
namespace {

// y = 2 x, in strategies whose schedules are refused or faulty.
class Twice : public Op {
 public:
  explicit Twice(const std::vector<std::string>& names)
      : Op({.name = "Twice",
            .inputs = {{.name = "x", .dtypes = {DType::f32}}},
            .outputs = {{.name = "y", .dtypes = {DType::f32}}}},
           table(names)) {}
  bool definition_refused = false;

 private:
  std::vector<Strategy> table(const std::vector<std::string>& names) const {
    std::vector<Strategy> all;
    for (const std::string& name : names)
      all.push_back(
          {.name = name, .author = [this, name](KernelFrame& frame, const ir::Target& target) -> ScheduleNest {
             author(frame, name);
             return [this, name, &target](ir::Schedule& s) { schedule(s, name, target); };
           }});
    return all;
  }
  Plan plan(const Request& request) const override {
    const Operand& x = request.input(0);
    Plan plan;
    plan.outputs.push_back({.dtype = DType::f32, .dims = x.dims});
    plan.views.push_back({.dtype = DType::f32, .dims = x.dims, .strides = x.strides});
    plan.views.push_back({.output = true, .dtype = DType::f32, .dims = x.dims, .strides = dense_strides(x.dims)});
    return plan;
  }
  static void author(KernelFrame& frame, const std::string& strategy) {
    const ir::Buffer x = frame.view(0, "x"), y = frame.view(1, "y");
    frame.builder.loop("i", 0, x->dims[0], [&](ir::Expr i) {
      const auto put = [&] { frame.builder.store(y, {i}, ir::load(x, {i}) + ir::load(x, {i})); };
      // A GPU resource limit: more than a block's memory, by name.
      if (strategy != "shared") return put();
      const ir::Buffer large = frame.builder.alloc("large", DType::f32, {1 << 20}, {}, ir::Space::shared);
      frame.builder.store(large, {0}, ir::load(x, {i}));
      put();
    });
  }
  void schedule(ir::Schedule& s, const std::string& strategy, const ir::Target& target) const {
    if (strategy == "refused") return s.unroll(s.loop("i"));  // more than 64 iterations
    if (strategy == "fault") throw Error(ErrorCode::internal, "a fault of the op");
    if (strategy == "wrong") return void(s.loop("j"));  // no such loop: an invalid argument, not a refusal
    if (strategy == "second" && !target.gpu) s.parallel(s.loop("i"));
    if (strategy == "direct" && definition_refused) s.unroll(s.loop("i"));
  }
};

#if defined(GRADLOOM_WITH_LLVM) || defined(GRADLOOM_WITH_CUDA)

struct Fixture {
  explicit Fixture(TargetKind target) : runtime({.target = target, .threads = 2, .disk_cache = "off"}) {}
  Runtime runtime;
  const std::vector<Tensor> inputs{Tensor::of(DType::f32, {100}, std::vector<float>(100, 1.5f))};

  void expect_doubled(const Op& op, const RunOptions& options, const std::string& strategy, int64_t refused) {
    Result<std::vector<Tensor>> y = runtime.run(op, inputs, {}, options);
    ASSERT_TRUE(y.ok()) << y.error().what();
    for (int i = 0; i < 100; ++i) ASSERT_EQ(static_cast<const float*>(y.value()[0].data())[i], 3.0f);
    EXPECT_EQ(runtime.last_report().strategy, strategy);
    EXPECT_EQ(runtime.stats().strategies_refused, refused);
  }
  Error error_of(const Op& op, const RunOptions& options = {}) {
    Result<std::vector<Tensor>> y = runtime.run(op, inputs, {}, options);
    EXPECT_FALSE(y.ok());
    return y.ok() ? Error(ErrorCode::internal, "none") : y.error();
  }
};

TEST(Strategies, OneThatIsRefusedGivesWayToTheNext) {
  for (const TargetKind target : compiled_targets()) {
    const Twice op({"refused", "second", "direct"});
    Fixture f(target);
    testing::internal::CaptureStderr();
    f.expect_doubled(op, {}, "second", 1);
    f.expect_doubled(op, {}, "second", 1);  // a hit
    const std::string logged = testing::internal::GetCapturedStderr();
    EXPECT_NE(logged.find("Twice: strategy refused is refused, second serves: unroll of loop i: "), std::string::npos)
        << logged;
    EXPECT_EQ(std::count(logged.begin(), logged.end(), '\n'), 1) << logged;
    // For any-shape, where the next strategy may not apply: the definition.
    f.expect_doubled(op, {.any_shape = true}, "direct", 2);
    Result<Executable> handle = f.runtime.compile(op, f.inputs);
    ASSERT_TRUE(handle.ok()) << handle.error().what();
    EXPECT_EQ(handle.value().report().strategy, "second");
  }
}

TEST(Strategies, TheDefinitionServesWithoutASchedule) {
  for (const TargetKind target : compiled_targets()) {
    Twice op({"refused", "direct"});
    op.definition_refused = true;
    Fixture f(target);
    testing::internal::CaptureStderr();
    f.expect_doubled(op, {}, "direct", 2);
    const std::string logged = testing::internal::GetCapturedStderr();
    EXPECT_NE(logged.find("strategy direct is refused, direct without its schedule serves: "), std::string::npos)
        << logged;
  }
}

TEST(Strategies, ByNameThereIsNoOther) {
  for (const TargetKind target : compiled_targets()) {
    const Twice op({"refused", "second", "direct"});
    for (const bool built_before : {false, true}) {
      Fixture f(target);
      if (built_before) f.expect_doubled(op, {}, "second", 1);  // cached where "refused" was chosen
      const Error error = f.error_of(op, {.strategy = "refused"});
      EXPECT_EQ(error.code(), ErrorCode::unsupported);
      EXPECT_NE(std::string(error.what()).find("Twice: strategy \"refused\" is refused for this call"),
                std::string::npos)
          << error.what();
      EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos);
      EXPECT_EQ(f.runtime.stats().strategies_refused, built_before ? 1 : 0);
      f.expect_doubled(op, {.strategy = "second"}, "second", built_before ? 1 : 0);
      EXPECT_FALSE(f.runtime.compile(op, f.inputs, {}, {.strategy = "refused"}).ok());
    }
  }
}

// A bug is never treated as a refusal.
TEST(Strategies, AFaultIsAnError) {
  for (const TargetKind target : compiled_targets()) {
    Fixture f(target);
    EXPECT_EQ(f.error_of(Twice({"fault", "direct"})).code(), ErrorCode::internal);
    EXPECT_NE(std::string(f.error_of(Twice({"wrong", "direct"})).what()).find("has no loop j"), std::string::npos);
    EXPECT_EQ(f.runtime.stats().strategies_refused, 0);
  }
}

#ifdef GRADLOOM_WITH_CUDA
TEST(Strategies, ALoweringThatIsRefusedGivesWay) {
  Fixture f(TargetKind::cuda_host);
  f.expect_doubled(Twice({"shared", "direct"}), {}, "direct", 1);
}
#endif
#endif

}  // namespace
}  // namespace gradloom
