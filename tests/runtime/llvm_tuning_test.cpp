// Tuning's kernels: what the log says is used where it serves, and only there; tuning measures and writes it. Nothing
// here depends on which kernel is faster.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "gradloom/runtime.h"
#include "gradloom/text.h"
#include "runtime/build.h"
#include "runtime/cache/op_key.h"
#include "runtime/tune_call.h"
#include "tests/support/log_lines.h"

namespace gradloom {
namespace {

namespace fs = std::filesystem;

// GatherElementsGrad: "strip" is preferred, "pipelined" and "direct" are possible.
constexpr int64_t rows = 48, columns = 64;
std::vector<Tensor> inputs(int64_t bad = -1) {
  std::vector<float> values;
  std::vector<int64_t> indices;
  for (int64_t i = 0; i < rows * columns; ++i) {
    values.push_back(1.0f / static_cast<float>(3 + i % 97));
    indices.push_back(i == bad ? rows : i * 7 % rows);
  }
  return {Tensor::of(DType::f32, {rows, columns}, values),
          Tensor::of(DType::i64, {2}, std::vector<int64_t>{rows, columns}),
          Tensor::of(DType::i64, {rows, columns}, indices)};
}
constexpr const char* op = "GatherElementsGrad";
const Attributes attributes{{"axis", int64_t{0}}};

std::vector<float> floats(const Tensor& t) {
  const auto* data = static_cast<const float*>(t.data());
  return {data, data + t.elements()};
}

class Tuned : public ::testing::Test {
 protected:
  Tuned() : folder_(fs::path(::testing::TempDir()) / fmt::format("tuned-{}", getpid())) { fs::remove_all(folder_); }
  ~Tuned() override { fs::remove_all(folder_); }

  RuntimeOptions options(Tuning tuning, bool disk = false) const {
    RuntimeOptions options{.target = TargetKind::llvm, .threads = 1};
    options.disk_cache = disk ? (folder_ / "cache").string() : "off";
    options.tuning = tuning;
    options.tuning_log = path();
    return options;
  }
  std::string path() const { return folder_ / "tuning.log"; }
  void write(const std::string& text) const {
    fs::create_directories(folder_);
    std::ofstream(path()) << text;
  }
  std::string read() const {
    std::ostringstream all;
    all << std::ifstream(path()).rdbuf();
    return all.str();
  }

  // An entry for the call as a measuring on this machine would have made it.
  static TuningEntry entry_of(const Runtime& runtime, const std::string& best, std::vector<std::string> trace) {
    const Op& gather = *find_op(op);
    const std::vector<Tensor> in = inputs();
    const Operands operands(gather.schema(), std::span<const Tensor>(in));
    const Plan plan = gather.check(operands.request(attributes, 1));
    const RunOptions none;
    const PlannedCall call{gather, plan, choose_strategy(gather, plan, none, runtime.target()),
                           none,   1,    aligned_outputs};
    return {.op = op,
            .call = tuning_call(call),
            .machine = machine_of(runtime),
            .rules = "strip",
            .best = best,
            .rules_ms = 2,
            .best_ms = 1,
            .nest = nest_hash(author_kernel(call.with(find_strategy(gather, best)), runtime.target()).authored),
            .trace = std::move(trace)};
  }
  // Of a log that tuning writes.
  static std::string machine_of(const Runtime& runtime) {
    const std::string path = fs::path(::testing::TempDir()) / fmt::format("machine-{}.log", getpid());
    RuntimeOptions options{.target = TargetKind::llvm, .threads = runtime.threads(), .disk_cache = "off"};
    options.tuning_log = path;
    Runtime other(options);
    EXPECT_TRUE(other.tune(op, inputs(), attributes, {}, {.candidates = 1}).ok());
    std::ostringstream all;
    all << std::ifstream(path).rdbuf();
    fs::remove(path);
    fs::remove(path + ".lock");
    return parse_tuning_log(all.str()).at(0).entry.machine;
  }
  std::vector<float> run(Runtime& runtime, const RunOptions& how = {}) {
    auto made = runtime.run(op, inputs(), attributes, how);
    EXPECT_TRUE(made.ok());
    return floats(made.value()[0]);
  }

  const fs::path folder_;
  const std::vector<std::string> own_trace_{"vectorize z0 8"};  // of "direct", which its own schedule never is
};

TEST_F(Tuned, TheLogsChoiceIsUsedWhereItIsAskedFor) {
  Runtime rules(options(Tuning::off, true));
  const std::vector<float> expected = run(rules);
  EXPECT_EQ(rules.last_report().strategy, "strip");
  const TuningEntry entry = entry_of(rules, "direct", own_trace_);
  write(print(entry));
  for (const bool warm : {false, true}) {
    Runtime runtime(options(Tuning::use, true));
    EXPECT_EQ(run(runtime), expected);
    const KernelReport report = runtime.last_report();
    EXPECT_EQ(report.strategy, "direct");
    EXPECT_EQ(report.schedule_trace, own_trace_);
    EXPECT_TRUE(report.tuned);
    EXPECT_EQ(report.from_disk, warm);
    EXPECT_EQ(report.compiled, !warm);
    EXPECT_EQ(runtime.stats().tuned, 1);
    EXPECT_EQ(run(runtime, {.strategy = "strip"}), expected) << "a strategy by name is the caller's";
    EXPECT_FALSE(runtime.last_report().tuned);
    EXPECT_EQ(run(runtime, {.any_shape = true}), expected);
    EXPECT_FALSE(runtime.last_report().tuned);
  }
  // The same disk cache without tuning: the rules' kernel, from the disk.
  Runtime off(options(Tuning::off, true));
  EXPECT_EQ(run(off), expected);
  EXPECT_EQ(off.last_report().strategy, "strip");
  EXPECT_FALSE(off.last_report().tuned);
  EXPECT_TRUE(off.last_report().from_disk);
}

TEST_F(Tuned, AnEntryOfTheRulesLeavesThemTheChoice) {
  Runtime rules(options(Tuning::off));
  TuningEntry entry = entry_of(rules, "direct", own_trace_);
  entry.best.clear(), entry.nest.clear(), entry.trace.clear();
  write(print(entry));
  Runtime runtime(options(Tuning::use));
  run(runtime);
  EXPECT_EQ(runtime.last_report().strategy, "strip");
  EXPECT_FALSE(runtime.last_report().tuned);
}

TEST_F(Tuned, AnEntryThatDoesNotServeIsIgnoredWithOneLine) {
  Runtime rules(options(Tuning::off));
  const std::vector<float> expected = run(rules);
  const TuningEntry good = entry_of(rules, "direct", own_trace_);
  const auto ignored = [&](TuningEntry entry, const std::string& why) {
    write(print(entry));
    testing::LogLines lines(LogLevel::warn);
    Runtime runtime(options(Tuning::use));
    EXPECT_EQ(run(runtime), expected) << why;
    EXPECT_EQ(run(runtime), expected);
    EXPECT_EQ(runtime.last_report().strategy, "strip") << why;
    EXPECT_FALSE(runtime.last_report().tuned);
    EXPECT_EQ(runtime.stats().tuning_ignored, 1);
    EXPECT_EQ(runtime.stats().tuned, 0);
    EXPECT_EQ(fmt::format("{}", fmt::join(lines.take(), "\n")),
              fmt::format("{}: its entry in the tuning log is ignored, the rules choose: {}", op, why));
  };
  TuningEntry entry = good;
  entry.nest[0] = entry.nest[0] == '0' ? '1' : '0';
  ignored(entry, "its nest is not the one that was measured");
  entry = good;
  entry.best = "grouped";  // GatherGrad's
  ignored(entry, "no strategy grouped serves the call");
  entry = good;
  entry.trace = {"vectorize nothing 8"};
  ignored(entry, fmt::format("schedule: kernel {}_direct has no loop nothing; its loops are: q0 z0 k0 i", op));
  entry = good;
  entry.trace = {"vectorize k0 8", "made up"};
  ignored(entry, "trace: unknown step made in \"made up\"");
  entry = good;
  entry.trace = {"parallel k0"};
  ignored(entry, "parallel of loop k0: two iterations of loop k0 may accumulate into the same element of d_column");
}

TEST_F(Tuned, AForeignOrDamagedLogIsIgnoredWithOneLine) {
  Runtime rules(options(Tuning::off));
  const std::string good = print(entry_of(rules, "direct", own_trace_));
  std::string foreign = good;
  foreign.replace(foreign.find("machine: "), 9, "machine: another ");
  for (const auto& [text, line] :
       {std::pair(foreign, fmt::format("tuning log {}: 1 entry is of other machines", path())),
        std::pair(good.substr(0, good.size() - 4),
                  fmt::format("tuning log {}: 1 entry is ignored; line 1: it lacks its \"end\"", path()))}) {
    write(text);
    testing::LogLines lines(LogLevel::info);
    Runtime runtime(options(Tuning::use));
    run(runtime);
    EXPECT_FALSE(runtime.last_report().tuned);
    const std::vector<std::string> told = lines.take();
    EXPECT_EQ(std::count(told.begin(), told.end(), line), 1) << fmt::format("{}", fmt::join(told, "\n"));
  }
}

TEST_F(Tuned, TuningWritesOneEntryACallAndChangesNoBit) {
  Runtime runtime(options(Tuning::use));
  const std::vector<float> expected = run(runtime);
  int told = 0;
  for (int round = 0; round < 2; ++round) {
    const auto report = runtime.tune(op, inputs(), attributes, {},
                                     {.candidates = 5, .progress = [&](int, std::string_view) { ++told; }});
    ASSERT_TRUE(report.ok()) << report.error().what();
    EXPECT_EQ(report.value().rules.strategy, "strip");
    EXPECT_EQ(report.value().measured, 5);
    EXPECT_TRUE(report.value().wrong.empty());
    EXPECT_EQ(report.value().log, path());
    EXPECT_EQ(run(runtime), expected);
    EXPECT_EQ(runtime.last_report().tuned, report.value().adopted);
    EXPECT_EQ(runtime.last_report().schedule_trace, report.value().best.trace);
  }
  EXPECT_EQ(told, 10);
  EXPECT_EQ(runtime.stats().tuning_runs, 2);
  const std::vector<TuningPart> parts = parse_tuning_log(read());
  ASSERT_EQ(parts.size(), 1u);
  EXPECT_EQ(parts[0].fault, "");
}

TEST_F(Tuned, EveryCandidateOfEveryStrategyHasTheSameBits) {
  Runtime runtime(options(Tuning::off));
  const auto report = runtime.tune(op, inputs(), attributes, {}, {.candidates = 60});
  ASSERT_TRUE(report.ok()) << report.error().what();
  EXPECT_TRUE(report.value().wrong.empty()) << report.value().wrong[0];
  EXPECT_GE(report.value().measured, 8);
  const auto accumulated = runtime.tune(op, inputs(), attributes, {.accumulate = true}, {.candidates = 8});
  ASSERT_TRUE(accumulated.ok()) << accumulated.error().what();
  EXPECT_TRUE(accumulated.value().wrong.empty());
}

TEST_F(Tuned, WhatCannotBeTunedIsRefused) {
  Runtime runtime(options(Tuning::use)), interpreter({.target = TargetKind::interpreter});
  const auto error = [&](Runtime& by, const RunOptions& how, const TuneOptions& options, int64_t bad = -1) {
    const auto report = by.tune(op, inputs(bad), attributes, how, options);
    return report.ok() ? std::string() : std::string(report.error().what());
  };
  EXPECT_EQ(error(runtime, {.strategy = "strip"}, {}),
            "GatherElementsGrad: a call that names its strategy or wants the kernel of every shape is not tuned");
  EXPECT_EQ(error(interpreter, {}, {}), "GatherElementsGrad: only target llvm is tuned, this runtime's is interpreter");
  EXPECT_EQ(error(runtime, {}, {.candidates = 0}),
            "TuneOptions: candidates is 0 and seconds is 60, expected at least 1 and more than 0");
  EXPECT_NE(error(runtime, {}, {}, 5).find("48"), std::string::npos) << "the call's own error";
  EXPECT_EQ(read(), "");
  fs::create_directories(path());  // no file
  EXPECT_NE(error(runtime, {}, {.candidates = 1}).find("cannot be written"), std::string::npos);
}

// Two strategies that a wrong op gives: they do not compute the same.
class Unequal final : public Op {
 public:
  Unequal()
      : Op({.name = "Unequal",
            .inputs = {{.name = "x", .dtypes = {DType::f32}}},
            .outputs = {{.name = "y", .dtypes = {DType::f32}}}},
           {strategy("one", 1, Determinism::sequential), strategy("two", 2, Determinism::sequential),
            strategy("loose", 3, Determinism::relaxed), strategy("definition", 1, Determinism::sequential)}) {}

 private:
  static Strategy strategy(const char* name, int times, Determinism level) {
    return {.name = name, .level = level, .author = [times](KernelFrame& frame, const ir::Target&) -> ScheduleNest {
              const ir::Buffer x = frame.view(0, "x"), y = frame.view(1, "y");
              frame.builder.loop("i", 0, x->dims[0], [&](const ir::Expr& i) {
                frame.builder.store(y, {i}, ir::load(x, {i}) * ir::constant(DType::f32, static_cast<double>(times)));
              });
              return [](ir::Schedule& s) { s.vectorize(s.loop("i"), 8); };
            }};
  }
  Plan plan(const Request& request) const override {
    const Operand& x = request.input(0);
    Plan plan;
    plan.outputs.push_back({.dtype = DType::f32, .dims = x.dims});
    plan.views.push_back({.dtype = DType::f32, .dims = x.dims, .strides = x.strides});
    plan.views.push_back({.output = true, .dtype = DType::f32, .dims = x.dims, .strides = dense_strides(x.dims)});
    return plan;
  }
};

TEST_F(Tuned, OtherBitsAreReportedAndNeverAdopted) {
  const Unequal unequal;
  Runtime runtime(options(Tuning::use));
  const std::vector<Tensor> x{Tensor::of(DType::f32, {64}, std::vector<float>(64, 1.5f))};
  const auto report = runtime.tune(unequal, x, {}, {.determinism = Determinism::relaxed}, {.candidates = 20});
  ASSERT_TRUE(report.ok()) << report.error().what();
  EXPECT_EQ(report.value().wrong, (std::vector<std::string>{"strategy two with vectorize i 8: its outputs differ"}))
      << "a relaxed strategy is no candidate";
  const std::string& best = report.value().best.strategy;
  EXPECT_TRUE(best == "one" || best == "definition") << best << ", and those two are one code";
  EXPECT_EQ(floats(runtime.run(unequal, x).value()[0])[0], 1.5f);
}

TEST_F(Tuned, AHotShapeIsMeasuredOnceInTheBackground) {
  for (const int64_t runs : {1, 0}) {
    RuntimeOptions how = options(Tuning::background);
    how.policy = Policy::generic_first;
    how.specialise_after = 2;
    Runtime runtime(how);
    const std::vector<float> expected = run(runtime);
    for (int i = 0; i < 4; ++i) EXPECT_EQ(run(runtime), expected);
    runtime.wait_for_background();
    EXPECT_EQ(run(runtime), expected);
    EXPECT_FALSE(runtime.last_report().any_shape);
    EXPECT_EQ(runtime.stats().tuning_runs, runs) << "the log has it";
    const std::vector<TuningPart> parts = parse_tuning_log(read());
    ASSERT_EQ(parts.size(), 1u);
    EXPECT_EQ(runtime.last_report().tuned, parts[0].entry.adopted());
  }
}

TEST_F(Tuned, ANestOfOnesOwnIsTunedByItsDefaultSchedule) {
  const ir::Kernel kernel = ir::parse(R"(kernel histogram(n: i64 in [0, 1048576]) {
  in bin: i32[n] in [0, 255]
  out count: i32[256]
  for z in 0 .. 256 {
    count[z] = i32(0)
  }
  for i in 0 .. n {
    count[i64(bin[i])] += i32(1)
  }
})");
  std::vector<int32_t> bins(4096);
  for (size_t i = 0; i < bins.size(); ++i) bins[i] = static_cast<int32_t>(i * i % 256);
  const std::vector<Tensor> buffers{Tensor::of(DType::i32, {4096}, bins), Tensor::empty(DType::i32, {256})};
  const std::vector<int64_t> scalars{4096};
  Runtime runtime(options(Tuning::use));
  const auto report = runtime.tune(kernel, buffers, scalars, {.candidates = 4});
  ASSERT_TRUE(report.ok()) << report.error().what();
  EXPECT_TRUE(report.value().wrong.empty());
  TuningEntry entry = parse_tuning_log(read()).at(0).entry;
  EXPECT_EQ(entry.op, "kernel histogram");
  entry.best = "own", entry.trace = {"vectorize z 4"}, entry.nest = nest_hash(kernel);
  write(print(entry));
  Runtime tuned(options(Tuning::use));
  const auto executable = tuned.compile(kernel).value();
  EXPECT_TRUE(executable.report().tuned);
  EXPECT_EQ(executable.report().schedule_trace, entry.trace);
  EXPECT_FALSE(tuned.compile(kernel, {.default_schedule = false}).value().report().tuned);
}

}  // namespace
}  // namespace gradloom
