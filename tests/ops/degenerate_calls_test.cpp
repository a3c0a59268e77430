// Calls whose loops degenerate: one strip, one row, an empty sum with another dim that is huge. Each was once refused
// by its schedule, or ran for hours.
#include <gtest/gtest.h>

#include <cmath>

#include "gradloom/op.h"
#include "gradloom/runtime.h"
#include "runtime/backend/backend.h"
#include "tests/support/named_strategy.h"
#include "tests/support/op_calls.h"
#include "tests/support/targets.h"

namespace gradloom {
namespace {

using testing_ops::Call;
using testing_ops::Random;
using testing_ops::shape_tensor;

RuntimeOptions on(TargetKind target, int threads = 2) {
  return {.target = target, .threads = threads, .disk_cache = "off"};
}

using Outputs = std::vector<std::vector<char>>;

Outputs run(Runtime& runtime, const Call& call, const RunOptions& options = {}) {
  Result<std::vector<Tensor>> result = runtime.run(call.op, call.inputs, call.attributes, options);
  if (!result) {
    ADD_FAILURE() << runtime.target_name() << ", " << call.op << " " << call.name << ": " << result.error().what();
    return {};
  }
  EXPECT_EQ(runtime.stats().strategies_refused, 0) << runtime.target_name() << ", " << call.op << " " << call.name;
  Outputs outputs;
  for (const Tensor& t : result.value()) outputs.emplace_back(t.begin_byte(), t.end_byte());
  return outputs;
}

Call gather_elements(DType dtype, Dims shape, Dims index, int64_t axis) {
  Random random(11);
  return {to_string(shape),
          "GatherElementsGrad",
          {random.values(dtype, index), shape_tensor(shape),
           random.indices(DType::i64, index, shape[static_cast<int>(axis)])},
          {{"axis", axis}}};
}

Call gather(DType dtype, Dims shape, int64_t count, int64_t axis) {
  Random random(12);
  Dims dy = shape;
  dy[static_cast<int>(axis)] = count;
  return {to_string(shape) + " from " + std::to_string(count),
          "GatherGrad",
          {shape_tensor(shape), random.indices(DType::i64, {count}, shape[static_cast<int>(axis)]),
           random.values(dtype, dy)},
          {{"axis", axis}}};
}

#ifdef GRADLOOM_WITH_LLVM
// A strip as wide as dX: 32 columns of f32, 16 of f64, 64 of f16.
TEST(DegenerateCalls, AStripAsWideAsTheOutputIsSharedOutToThreads) {
  for (const auto& [dtype, columns] :
       {std::pair{DType::f32, int64_t{32}}, {DType::f32, 16}, {DType::f64, 16}, {DType::f16, 64}}) {
    const Call call = gather_elements(dtype, {65, 300, columns}, {65, 90, columns}, 1);
    Runtime one(on(TargetKind::llvm, 1));
    const Outputs want = run(one, call, {.strategy = "direct"});
    for (int threads = 1; threads <= 3; ++threads) {
      Runtime runtime(on(TargetKind::llvm, threads));
      EXPECT_EQ(run(runtime, call, {.strategy = "pipelined"}), want)
          << to_string(dtype) << ", " << threads << " threads";
      EXPECT_EQ(run(runtime, call), want) << to_string(dtype) << ", " << threads << " threads, by default";
    }
  }
}
#endif

#ifdef GRADLOOM_WITH_CUDA
// Integral values, whose sums are exact in any order.
Tensor whole_numbers(DType dtype, const Dims& dims) {
  std::vector<int> values(static_cast<size_t>(element_count(dims)));
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<int>(i * 7 % 15) - 7;
  return Tensor::of(dtype, dims, values);
}

TEST(DegenerateCalls, AnOnlyRowIsSummedInChunksOnAGpu) {
  std::vector<Call> calls;
  for (const int64_t columns : {1, 31, 32, 33, 64, 65, 300})
    for (const int64_t count : {3, 64, 65, 700}) calls.push_back(gather(DType::f32, {1, columns}, count, 0));
  calls.push_back(gather_elements(DType::f32, {1}, {200}, 0));
  calls.push_back(gather(DType::f32, {63, 1, 3}, 70, 1));
  calls.push_back(gather(DType::f32, {63, 1, 40}, 70, 1));
  Runtime interpreter(on(TargetKind::interpreter)), host(on(TargetKind::cuda_host));
  for (size_t i = 0; i < calls.size(); ++i) {
    Call& call = calls[i];
    Tensor& dy = call.inputs[call.op == "GatherGrad" ? 2 : 0];
    dy = whole_numbers(DType::f32, dy.dims());
    // Every schedule is checked, but only a few are compiled: compilation takes longer than all the rest.
    if (i % 6 == 0 || i + 3 >= calls.size()) {
      EXPECT_EQ(run(host, call, {.strategy = "chunked"}), run(interpreter, call)) << call.name;
    }
    const Op& op = *find_op(call.op);
    const Operands operands(op.schema(), call.inputs);
    const Plan plan = op.check(operands.request(call.attributes, ~0u, false, Determinism::run_to_run));
    EXPECT_NO_THROW(build_kernel(op, plan, "chunked", host_gpu_target(), false, 64, false)) << call.name;
  }
}

TEST(DegenerateCalls, DimsThatStayApartAreSummedOnAGpu) {
  Random random(13);
  // Rows backwards and with gaps: none of the six dims can be collapsed.
  const Dims dims{2, 3, 2, 3, 2, 5};
  Dims strides;
  strides.resize(6);
  int64_t step = -1, offset = 0;
  for (int d = 5; d >= 0; --d) {
    strides[d] = step;
    offset -= (dims[d] - 1) * step;
    step = step * dims[d] - 2;
  }
  const Tensor dy = random.values(DType::f32, {offset + 1}).view(dims, strides, offset);
  Runtime interpreter(on(TargetKind::interpreter)), host(on(TargetKind::cuda_host));
  for (const Dims& shape : {Dims{2, 1, 2, 1, 2, 1}, Dims{1, 3, 1, 3, 1, 5}, Dims{2, 3, 1, 3, 2, 1}}) {
    const Call call{to_string(shape), "BroadcastGrad", {dy, shape_tensor(shape)}, {}};
    EXPECT_EQ(run(host, call, {.any_shape = true}), run(interpreter, call)) << call.name;
  }
}
#endif

Call empty_sum(DType dtype, const Dims& dy, const Dims& shape) {
  static const double nothing = 0;
  return {to_string(dy) + " to " + to_string(shape),
          "BroadcastGrad",
          {Tensor::borrow(&nothing, dtype, dy), shape_tensor(shape)},
          {}};
}

// Regardless of the size of the other dims.
TEST(DegenerateCalls, AnEmptySumIsZeroAtOnce) {
  constexpr int64_t huge = int64_t{1} << 40;
  const std::vector<std::pair<Call, size_t>> calls{
      {empty_sum(DType::f64, {huge, 2, 0}, {1, 2, 1}), 2}, {empty_sum(DType::f32, {0, 3, huge}, {1, 3, 1}), 3},
      {empty_sum(DType::bf16, {huge, 0}, {}), 1},          {empty_sum(DType::f32, {huge, 0, 4}, {huge, 0, 1}), 0},
      {empty_sum(DType::f16, {0, huge, 5}, {1, 1, 5}), 5}, {empty_sum(DType::f32, {16, 0, 32, 4}, {0, 1, 4}), 0}};
  for (const TargetKind target : all_targets()) {
    Runtime runtime(on(target));
    for (const auto& [call, elements] : calls)
      for (const bool any_shape : {false, true}) {
        const Outputs outputs = run(runtime, call, {.any_shape = any_shape});
        ASSERT_EQ(outputs.size(), 1u);
        EXPECT_EQ(outputs[0], std::vector<char>(elements * static_cast<size_t>(size_of(call.inputs[0].dtype())), 0))
            << call.name;
      }
  }
}

// Accumulated into the existing output: -0.0 becomes +0.0, as in any addition.
TEST(DegenerateCalls, AnEmptySumIsAdded) {
  for (const TargetKind target : all_targets()) {
    Runtime runtime(on(target));
    const Call call = empty_sum(DType::f32, {int64_t{1} << 40, 2, 0}, {1, 2, 1});
    std::vector<Tensor> outputs{Tensor::of(DType::f32, {1, 2, 1}, std::vector<float>{-0.0f, 1.5f})};
    const auto done = runtime.run_into(call.op, call.inputs, outputs, {}, {.accumulate = true});
    ASSERT_TRUE(done.ok()) << done.error().what();
    const float* sums = static_cast<const float*>(outputs[0].data());
    EXPECT_FALSE(std::signbit(sums[0]));
    EXPECT_EQ(sums[0], 0.0f);
    EXPECT_EQ(sums[1], 1.5f);
  }
}

// Every group of positions is the only row's: groups are not shared out to threads.
TEST(DegenerateCalls, AnOnlyRowIsAccumulatedInto) {
  for (const auto& [shape, axis] : {std::pair{Dims{1, 3}, int64_t{0}}, {Dims{5, 1, 3}, 1}}) {
    Call call = gather(DType::f32, shape, 70000, axis);  // worth threads
    const Dims dy = call.inputs[2].dims();
    call.inputs[2] = Tensor::of(DType::f32, dy, std::vector<float>(static_cast<size_t>(element_count(dy)), 1.0f));
    const std::vector<float> want(static_cast<size_t>(element_count(shape)), 70001.0f);
    for (int threads = 1; threads <= 3; ++threads) {
      Runtime runtime(on(TargetKind::llvm, threads));
      for (const char* strategy : {"touched_rows", "direct"}) {
        std::vector<float> sums(want.size(), 1.0f);
        std::vector<Tensor> outputs{Tensor::borrow(static_cast<void*>(sums.data()), DType::f32, shape)};
        const auto done = runtime.run_into(call.op, call.inputs, outputs, call.attributes,
                                           {.accumulate = true, .strategy = strategy});
        ASSERT_TRUE(done.ok()) << strategy << ", " << to_string(shape) << ": " << done.error().what();
        EXPECT_EQ(sums, want) << strategy << ", " << to_string(shape) << ", " << threads << " threads";
      }
    }
  }
}

// Huge step counts with no sequence, and huge batches without a step.
TEST(DegenerateCalls, ARecurrentOpDoesNothingAsOftenAsItIsTold) {
  static const double nothing = 0;
  constexpr int64_t huge = int64_t{1} << 40, hidden = 3, inputs = 2;
  const auto of = [](const Dims& dims) { return Tensor::borrow(&nothing, DType::f32, dims); };
  Random random(14);
  for (const TargetKind target : all_targets())
    for (const auto& [steps, batch] : {std::pair{huge, int64_t{0}}, {int64_t{0}, huge}}) {
      Runtime runtime(on(target));
      std::vector<Tensor> in{of({steps, batch, inputs}),
                             random.values(DType::f32, {1, 3 * hidden, inputs}),
                             random.values(DType::f32, {1, 3 * hidden, hidden}),
                             random.values(DType::f32, {1, 6 * hidden}),
                             {},
                             {}};
      const uint32_t no_final = batch == 0 ? 7 : 5;  // with a batch, the last states would be that large
      run(runtime, {"forward", "GRUTraining", in, {}}, {.outputs_wanted = no_final});
      in.insert(in.end(),
                {of({steps, 1, batch, hidden}), of({steps, 1, batch, 3 * hidden}), of({steps, 1, batch, hidden}), {}});
      const Outputs gradients =
          run(runtime, {"backward", "GRUGrad", in, {}}, {.outputs_wanted = batch == 0 ? 31u : 15u});
      ASSERT_GE(gradients.size(), 4u);
      for (const size_t o : {1, 2, 3}) {  // dW, dR and dB: empty sums
        EXPECT_FALSE(gradients[o].empty());
        EXPECT_EQ(gradients[o], std::vector<char>(gradients[o].size(), 0)) << runtime.target_name() << ", output " << o;
      }
    }
}

}  // namespace
}  // namespace gradloom
