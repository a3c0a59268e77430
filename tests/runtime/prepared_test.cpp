// What a binding calls: outputs ahead of a run, memory of its own, a handle for any shapes, its own pool.
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <thread>

#include "cli/cases.h"
#include "tests/runtime/runtime_ops.h"

namespace gradloom {
namespace {

using namespace testing;

Tensor ints(const std::vector<int64_t>& values) {
  return Tensor::of(DType::i64, {static_cast<int64_t>(values.size())}, values);
}

// GatherGrad of `rows` rows into 4, three floats each; row r goes to row 3 * r % 4.
std::vector<Tensor> gather(int64_t rows, float value = 1) {
  std::vector<int64_t> indices;
  for (int64_t r = 0; r < rows; ++r) indices.push_back(3 * r % 4);
  return {ints({4, 3}), ints(indices), floats({rows, 3}, Values(static_cast<size_t>(rows * 3), value))};
}

Values of_gather(int64_t rows, float value = 1) {
  Values sums(12, 0);
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t i = 0; i < 3; ++i) sums[static_cast<size_t>(3 * r % 4 * 3 + i)] += value;
  return sums;
}

TEST(InferOutputs, SaysShapesAndDtypesWithoutMemory) {
  Runtime runtime(interpreted());
  const int64_t shape[] = {4, 3};
  const std::vector<Operand> described{
      {.present = true, .dtype = DType::i64, .dims = {2}, .strides = {1}, .host = shape},
      {.present = true, .dtype = DType::i32, .dims = {1000}, .strides = {1}},
      {.present = true, .dtype = DType::bf16, .dims = {1000, 3}, .strides = {3, 1}}};
  const auto outputs = runtime.infer_outputs("GatherGrad", described).value();
  ASSERT_EQ(outputs.size(), 1u);
  EXPECT_TRUE(outputs[0].wanted);
  EXPECT_EQ(outputs[0].dtype, DType::bf16);
  EXPECT_EQ(to_string(outputs[0].dims), "[4,3]");
  // Of an output whose size the kernel finds: the most; not asked for: not wanted.
  const std::vector<Tensor> shapes{ints({2, 3, 4}), ints({3, 1})};
  const auto axes = runtime.infer_outputs("BroadcastGradientArgs", shapes, {}, {.outputs_wanted = 2}).value();
  ASSERT_EQ(axes.size(), 2u);
  EXPECT_FALSE(axes[0].wanted);
  EXPECT_TRUE(axes[1].wanted);
  EXPECT_EQ(to_string(axes[1].dims), "[3]");
  expect_refused(runtime.infer_outputs("GatherGrad", gather(2), {{"axis", int64_t{2}}}), ErrorCode::invalid_argument,
                 {"GatherGrad", "attribute axis is 2"});
  expect_refused(runtime.infer_outputs("NoOp", gather(2)), ErrorCode::unsupported, {"NoOp"});
  std::vector<Operand> unread = described;
  unread[0].host = nullptr;
  expect_refused(runtime.infer_outputs("GatherGrad", unread), ErrorCode::invalid_argument,
                 {"input 0 (shape) has no host data"});
  EXPECT_EQ(runtime.stats().launches, 0);
}

TEST(AllocateOutput, GivesTheMemoryOfARun) {
  Runtime runtime(interpreted());
  std::vector<float> memory(12 + 1, -1);
  std::string asked;
  RunOptions options;
  options.launch.allocate = [&](std::string_view op, int output, DType dtype, const Dims& dims) -> void* {
    asked += std::string(op) + " " + std::to_string(output) + " " + to_string(dtype) + to_string(dims) + ";";
    return memory.data() + 1;  // no address that kernels would choose
  };
  const auto outputs = runtime.run("GatherGrad", gather(5), {}, options).value();
  EXPECT_EQ(asked, "GatherGrad 0 f32[4,3];");
  EXPECT_EQ(outputs[0].data(), memory.data() + 1);
  EXPECT_EQ(values_of(outputs[0]), of_gather(5));
  EXPECT_EQ(memory[0], -1);

  const PreparedOp prepared = runtime.prepare("GatherGrad").value();
  std::fill(memory.begin(), memory.end(), -1);
  EXPECT_EQ(prepared.run(gather(6), options.launch).value()[0].data(), memory.data() + 1);
  EXPECT_EQ(Values(memory.begin() + 1, memory.end()), of_gather(6));

  // The size that the kernel found, and an output that is not asked for.
  std::vector<int64_t> axes(3, -1);
  asked.clear();
  options.outputs_wanted = 2;
  options.launch.allocate = [&](std::string_view, int output, DType, const Dims& dims) -> void* {
    asked += std::to_string(output) + to_string(dims) + ";";
    return axes.data();
  };
  const auto found =
      runtime.run("BroadcastGradientArgs", std::vector{ints({2, 3, 4}), ints({3, 1})}, {}, options).value();
  EXPECT_EQ(asked, "1[2];");
  EXPECT_EQ(to_string(found[1].dims()), "[2]");
  EXPECT_EQ(axes, (std::vector<int64_t>{2, 0, -1}));
}

TEST(AllocateOutput, IsCheckedAsAnyMemory) {
  Runtime runtime(interpreted());
  const std::vector<Tensor> inputs = gather(4);
  RunOptions options;
  options.launch.allocate = [](std::string_view, int, DType, const Dims&) -> void* { return nullptr; };
  expect_refused(runtime.run("GatherGrad", inputs, {}, options), ErrorCode::resource_exhausted,
                 {"GatherGrad: output 0 (dX)", "allocate", "[4,3]", "48 bytes"});
  options.launch.allocate = [&](std::string_view, int, DType, const Dims&) { return inputs[2].data(); };
  expect_refused(runtime.run("GatherGrad", inputs, {}, options), ErrorCode::invalid_argument,
                 {"output 0 (dX) overlaps input 2 (dY)"});
  expect_refused(runtime.prepare("GatherGrad").value().run(inputs, options.launch), ErrorCode::invalid_argument,
                 {"output 0 (dX) overlaps input 2 (dY)"});
  const std::vector<Tensor> shapes{ints({2, 3, 4}), ints({3, 1})};
  options.launch.allocate = [&](std::string_view, int, DType, const Dims&) { return shapes[0].data(); };
  expect_refused(runtime.run("BroadcastGradientArgs", shapes, {}, {.outputs_wanted = 2, .launch = options.launch}),
                 ErrorCode::invalid_argument, {"output 1 (b_axes) overlaps input 0 (a_shape)"});
  EXPECT_EQ(static_cast<const int64_t*>(shapes[0].data())[0], 2);
  options.launch.allocate = [](std::string_view, int, DType, const Dims&) -> void* { throw std::runtime_error("no"); };
  expect_refused(runtime.run("GatherGrad", inputs, {}, options), ErrorCode::internal, {"no"});
  EXPECT_EQ(values_of(runtime.run("GatherGrad", inputs).value()[0]), of_gather(4));
}

TEST(PreparedOp, ServesAnyShapeAsRunDoes) {
  for (const TargetKind target : {TargetKind::interpreter, TargetKind::automatic}) {
    RuntimeOptions options;
    options.target = target;
    Runtime runtime(options);
    const PreparedOp prepared = runtime.prepare("GatherGrad", {{"axis", int64_t{-2}}}).value();
    alignas(64) float memory[32];
    for (int repeat = 0; repeat < 3; ++repeat)
      for (const int64_t rows : {1, 5, 0, 7, 2, 9})  // more than a place knows
        for (const int offset : {0, 1}) {
          const float value = static_cast<float>(1 + repeat + offset);
          std::vector<Tensor> outputs{Tensor::borrow(memory + offset, DType::f32, {4, 3})};
          const auto done = prepared.run_into(gather(rows, value), outputs);
          ASSERT_TRUE(done.ok()) << done.error().what();
          EXPECT_EQ(values_of(outputs[0]), of_gather(rows, value)) << rows;
          EXPECT_EQ(values_of(prepared.run(gather(rows, value)).value()[0]), of_gather(rows, value));
        }
    EXPECT_EQ(runtime.stats().entries, 6 * 2) << "as many kernels as run makes";
    EXPECT_EQ(runtime.last_report().op, "GatherGrad");
    EXPECT_EQ(runtime.used_calls().size(), 6u * 2);
    // Cleared: what the handle knows is compiled again.
    runtime.clear_cache();
    EXPECT_EQ(values_of(prepared.run(gather(5)).value()[0]), of_gather(5));
    EXPECT_EQ(runtime.stats().entries, 1);
  }
}

TEST(PreparedOp, ReadsShapesAgain) {
  Runtime runtime(interpreted());
  const PreparedOp prepared = runtime.prepare("SliceGrad").value();
  for (int repeat = 0; repeat < 2; ++repeat)
    for (const int64_t start : {0, 1, 2, 3, 4}) {
      const std::vector<Tensor> inputs{floats({1}, {7}), ints({5}), ints({start}), ints({start + 1})};
      Values want(5, 0);
      want[static_cast<size_t>(start)] = 7;
      EXPECT_EQ(values_of(prepared.run(inputs).value()[0]), want);
    }
}

TEST(PreparedOp, KeepsTheRuntimesPolicy) {
  RuntimeOptions options = interpreted();
  options.policy = Policy::generic_first;
  options.specialise_after = 4;
  Runtime runtime(options);
  const PreparedOp prepared = runtime.prepare("GatherGrad").value();
  for (int call = 0; call < 3; ++call)
    for (const int64_t rows : {2, 3}) EXPECT_EQ(values_of(prepared.run(gather(rows)).value()[0]), of_gather(rows));
  Stats stats = runtime.stats();
  EXPECT_EQ(stats.generic_calls, 6);
  EXPECT_EQ(stats.entries, 1);
  EXPECT_TRUE(runtime.last_report().any_shape);
  for (int call = 0; call < 20; ++call) EXPECT_TRUE(prepared.run(gather(3)).ok());
  runtime.wait_for_background();
  EXPECT_TRUE(prepared.run(gather(3)).ok());
  EXPECT_FALSE(runtime.last_report().any_shape) << "the hot shape has a kernel of its own";
  stats = runtime.stats();
  EXPECT_EQ(stats.specialised, 1);
  EXPECT_TRUE(prepared.run(gather(3)).ok());
  EXPECT_EQ(runtime.stats().generic_calls, stats.generic_calls);
  EXPECT_TRUE(prepared.run(gather(2)).ok());
  EXPECT_EQ(runtime.stats().generic_calls, stats.generic_calls + 1);
}

TEST(PreparedOp, LeavesOutArgumentsAsRunDoes) {
  Runtime runtime(interpreted());
  const cases::Case c = cases::read_case(GRADLOOM_TEST_DIR "/golden/gru_grad__k0_lbr0.json");
  const PreparedOp prepared = runtime.prepare(c.op, c.attributes).value();
  std::vector<Tensor> inputs = c.inputs;
  inputs[4] = inputs[5] = Tensor();  // sequence_lens, initial_h
  const std::vector<Tensor> all = runtime.run(c.op, inputs, c.attributes).value();
  for (size_t given = 0; given < all.size(); ++given) {
    std::vector<Tensor> outputs(all.size());
    outputs[given] = Tensor::empty(all[given].dtype(), all[given].dims());
    const auto done = prepared.run_into(inputs, outputs);
    ASSERT_TRUE(done.ok()) << done.error().what();
    EXPECT_EQ(values_of(outputs[given]), values_of(all[given])) << given;
    EXPECT_TRUE(runtime.run_into(c.op, inputs, outputs, c.attributes).ok());
  }
}

TEST(PreparedOp, RefusesAsRunDoes) {
  Runtime runtime(interpreted());
  expect_refused(runtime.prepare("NoOp"), ErrorCode::unsupported, {"there is no op \"NoOp\""});
  expect_refused(runtime.prepare("GatherGrad", {{"axes", int64_t{0}}}), ErrorCode::invalid_argument,
                 {"unknown attribute 'axes'", "allowed: axis"});
  expect_refused(runtime.prepare("GatherGrad", {{"axis", 0.0}}), ErrorCode::invalid_argument,
                 {"attribute axis is of type float"});
  expect_refused(runtime.prepare("GatherGrad", {}, {.strategy = "fast"}), ErrorCode::invalid_argument,
                 {"no strategy \"fast\""});
  expect_refused(PreparedOp().run(gather(1)), ErrorCode::invalid_argument, {"empty PreparedOp"});
  const PreparedOp prepared = runtime.prepare("GatherGrad").value();
  std::vector<Tensor> outputs{Tensor::empty(DType::f32, {4, 3})};
  ASSERT_TRUE(prepared.run_into(gather(2), outputs).ok());
  // Of a known call, what is not compared with it.
  std::vector<Tensor> wrong{Tensor::empty(DType::f32, {3, 4})};
  expect_refused(prepared.run_into(gather(2), wrong), ErrorCode::invalid_argument, {"dX", "[3,4]", "[4,3]"});
  std::vector<Tensor> two{outputs[0], outputs[0]};
  expect_refused(prepared.run_into(gather(2), two), ErrorCode::invalid_argument, {"2 outputs given; it has 1"});
  std::vector<Tensor> none{Tensor()};
  expect_refused(prepared.run_into(gather(2), none), ErrorCode::invalid_argument, {"output 0 (dX) is not asked for"});
  std::vector<Tensor> inputs = gather(2);
  const float* const dy = static_cast<const float*>(inputs[2].data());
  std::vector<Tensor> read_only{Tensor::borrow(static_cast<const void*>(outputs[0].data()), DType::f32, {4, 3})};
  expect_refused(prepared.run_into(inputs, read_only), ErrorCode::invalid_argument, {"dX", "read-only"});
  inputs[1] = ints({1, 4});
  expect_refused(prepared.run_into(inputs, outputs), ErrorCode::out_of_range, {"indices)[1] is 4"});
  inputs.push_back(ints({1}));
  expect_refused(prepared.run_into(inputs, outputs), ErrorCode::invalid_argument, {"4 inputs given"});
  expect_refused(prepared.run_into(std::vector{inputs[0]}, outputs), ErrorCode::invalid_argument, {"input 1"});
  EXPECT_EQ(dy[0], 1);
  EXPECT_TRUE(prepared.run_into(gather(2), outputs).ok());
  expect_refused(runtime.prepare("GatherGrad", {}, {.accumulate = true}).value().run(gather(2)),
                 ErrorCode::invalid_argument, {"accumulate", "run_into"});
}

TEST(PreparedOp, ServesManyThreadsAndOutlivesItsRuntime) {
  auto runtime = std::make_unique<Runtime>(interpreted());
  const PreparedOp prepared = runtime->prepare("GatherGrad").value();
  runtime.reset();
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 20; ++t)  // more than there are places
    threads.emplace_back([&, t] {
      for (int call = 0; call < 20; ++call) {
        const int64_t rows = 1 + (t + call) % 7;
        if (values_of(prepared.run(gather(rows)).value()[0]) != of_gather(rows)) ++wrong;
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

// A handle's call inside another's, from the callback that gives memory.
TEST(PreparedOp, IsReentrant) {
  Runtime runtime(interpreted());
  const PreparedOp prepared = runtime.prepare("GatherGrad").value();
  LaunchOptions launch;
  Tensor memory = Tensor::empty(DType::f32, {4, 3});
  launch.allocate = [&](std::string_view, int, DType, const Dims&) {
    EXPECT_EQ(values_of(prepared.run(gather(5)).value()[0]), of_gather(5));
    return memory.data();
  };
  EXPECT_EQ(values_of(prepared.run(gather(6), launch).value()[0]), of_gather(6));
}

}  // namespace
}  // namespace gradloom
