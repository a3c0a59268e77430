// Inputs on which ORT 1.19.2 crashes, silently writes out of bounds or fails late: gradloom rejects them by name before
// it writes, and the next call succeeds.
#include <gtest/gtest.h>

#include <cstring>

#include "gradloom/runtime.h"

namespace gradloom {
namespace {

Tensor ints(const std::vector<int64_t>& values) {
  return Tensor::of(DType::i64, {static_cast<int64_t>(values.size())}, values);
}
Tensor zeros(const Dims& dims, DType dtype = DType::f32) {
  Tensor t = Tensor::empty(dtype, dims);
  if (t.data()) std::memset(t.data(), 0, element_count(dims) * size_of(dtype));  // an empty tensor has no memory
  return t;
}
// Declares dims larger than its memory: reading any of it would fault.
Tensor claimed(const Dims& dims) {
  static const float one = 1;
  return Tensor::borrow(&one, DType::f32, dims);
}

struct BadCall {
  std::string name, op;
  std::vector<Tensor> inputs;
  Attributes attributes;
  ErrorCode code;
  std::vector<std::string> says;  // substrings of the message
  Dims output{4, 2};
};

std::vector<BadCall> bad_calls() {
  using enum ErrorCode;
  const Attributes axis0{{"axis", int64_t{0}}};
  const Tensor shape = ints({4, 2}), one_index = ints({1});
  return {
      {"dy_twice_too_long",
       "GatherGrad",
       {shape, ints({0, 3}), claimed({4, 2})},
       axis0,
       invalid_argument,
       {"GatherGrad", "dY", "[4,2]", "[2,2]"}},
      {"dy_4096_times_too_long",
       "GatherGrad",
       {shape, ints({0, 3}), claimed({8192, 2})},
       axis0,
       invalid_argument,
       {"dY", "[8192,2]"}},
      {"dy_half_a_million_times_too_long",
       "GatherGrad",
       {shape, one_index, claimed({1 << 19, 2})},
       axis0,
       invalid_argument,
       {"dY"}},
      {"dy_too_short",
       "GatherGrad",
       {shape, ints({0, 1, 2}), claimed({1, 2})},
       axis0,
       invalid_argument,
       {"dY", "[1,2]", "[3,2]"}},
      {"empty_indices_full_dy",
       "GatherGrad",
       {shape, ints({}), claimed({3, 2})},
       axis0,
       invalid_argument,
       {"dY", "[3,2]", "[0,2]"}},
      {"index_high",
       "GatherGrad",
       {shape, ints({0, 4}), zeros({2, 2})},
       axis0,
       out_of_range,
       {"GatherGrad", "indices", "1", "4", "-4", "3"}},
      {"index_low", "GatherGrad", {shape, ints({-5, 0}), zeros({2, 2})}, axis0, out_of_range, {"indices", "0", "-5"}},
      {"index_far",
       "GatherGrad",
       {shape, ints({0, INT64_MIN}), zeros({2, 2})},
       axis0,
       out_of_range,
       {"indices", "1", "-9223372036854775808"}},
      {"index_in_nothing",
       "GatherGrad",
       {ints({0, 2}), ints({0}), zeros({1, 2})},
       axis0,
       out_of_range,
       {"indices"},
       {0, 2}},
      {"index_high_into_empty_rows",
       "GatherGrad",
       {ints({4, 0}), ints({0, 4}), zeros({2, 0})},
       axis0,
       out_of_range,
       {"indices", "1", "4"},
       {4, 0}},
      {"negative_dim",
       "GatherGrad",
       {ints({-4, 2}), one_index, zeros({1, 2})},
       axis0,
       invalid_argument,
       {"shape", "-4"}},
      {"huge_shape",
       "GatherGrad",
       {ints({INT64_MAX, 2}), one_index, zeros({1, 2})},
       axis0,
       invalid_argument,
       {"shape"}},
      {"axis_out_of_range",
       "GatherGrad",
       {shape, one_index, zeros({1, 2})},
       {{"axis", int64_t{2}}},
       invalid_argument,
       {"axis", "2"}},
      {"index_dtype",
       "GatherGrad",
       {shape, zeros({1}), zeros({1, 2})},
       axis0,
       invalid_argument,
       {"indices", "float32"}},
      {"unknown_attribute",
       "GatherGrad",
       {shape, one_index, zeros({1, 2})},
       {{"axes", int64_t{0}}},
       invalid_argument,
       {"axes"}},
      {"slice_wrong_length",
       "SliceGrad",
       {claimed({900}), ints({4}), ints({0}), ints({2})},
       {},
       invalid_argument,
       {"SliceGrad", "dY", "[900]", "[2]"},
       {4}},
      {"slice_64_for_2_step_2",
       "SliceGrad",
       {claimed({64}), ints({4}), ints({0}), ints({4}), ints({0}), ints({2})},
       {},
       invalid_argument,
       {"dY", "[64]", "[2]"},
       {4}},
      {"slice_step_0",
       "SliceGrad",
       {zeros({2}), ints({4}), ints({0}), ints({2}), ints({0}), ints({0})},
       {},
       invalid_argument,
       {"steps", "0"},
       {4}},
      {"slice_duplicate_axes",
       "SliceGrad",
       {zeros({2, 2}), shape, ints({0, 0}), ints({2, 2}), ints({0, -2})},
       {},
       invalid_argument,
       {"axes"}},
      {"slice_lengths_differ",
       "SliceGrad",
       {zeros({2}), ints({4}), ints({0}), ints({2, 3})},
       {},
       invalid_argument,
       {"ends", "2", "1"},
       {4}},
      {"slice_axis_out_of_range",
       "SliceGrad",
       {zeros({2}), ints({4}), ints({0}), ints({2}), ints({1})},
       {},
       invalid_argument,
       {"axes", "1"},
       {4}},
      {"elements_rank",
       "GatherElementsGrad",
       {zeros({2, 2}), shape, ints({0, 1})},
       axis0,
       invalid_argument,
       {"indices", "rank"}},
      {"elements_dims_differ",
       "GatherElementsGrad",
       {zeros({2, 2}), shape, Tensor::of(DType::i64, {3, 2}, std::vector<int64_t>(6))},
       axis0,
       invalid_argument,
       {"dY"}},
      {"elements_too_wide",
       "GatherElementsGrad",
       {zeros({2, 3}), shape, Tensor::of(DType::i64, {2, 3}, std::vector<int64_t>(6))},
       axis0,
       invalid_argument,
       {"indices", "3", "2"}},
      {"elements_index_high",
       "GatherElementsGrad",
       {zeros({1, 2}), shape, Tensor::of(DType::i64, {1, 2}, std::vector<int64_t>{0, 4})},
       axis0,
       out_of_range,
       {"indices", "4"}},
      {"shapes_do_not_broadcast",
       "BroadcastGradientArgs",
       {ints({4, 2}), ints({4, 3})},
       {},
       invalid_argument,
       {"[4,2]", "[4,3]"},
       {2}},
      {"not_a_broadcast", "BroadcastGrad", {zeros({4, 3}), ints({4, 2})}, {}, invalid_argument, {"dY", "[4,3]"}},
      {"not_there", "GatherGradd", {shape}, {}, unsupported, {"GatherGradd", "GatherGrad"}},
      {"no_inputs", "GatherGrad", {}, axis0, invalid_argument, {"shape"}},
      {"too_many_inputs", "GatherGrad", {shape, one_index, zeros({1, 2}), shape}, axis0, invalid_argument, {"4"}},
  };
}

class BadInput : public testing::TestWithParam<BadCall> {};

TEST_P(BadInput, IsRefusedByNameAndTheNextCallWorks) {
  const BadCall& bad = GetParam();
  for (const TargetKind target : {TargetKind::interpreter, TargetKind::automatic}) {
    Runtime runtime({.target = target, .threads = 2});
    const auto fresh = runtime.run(bad.op, bad.inputs, bad.attributes);
    ASSERT_FALSE(fresh.ok());
    EXPECT_EQ(fresh.error().code(), bad.code) << fresh.error().what();
    const std::string message = fresh.error().what();
    for (const std::string& piece : bad.says)
      EXPECT_NE(message.find(piece), std::string::npos) << "\"" << piece << "\" is not in: " << message;
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;

    // Into caller-provided memory, between guards.
    const int64_t bytes = element_count(bad.output) * 4;
    std::vector<unsigned char> memory(64 + bytes + 64, 0xab);
    std::vector<Tensor> outputs{Tensor::borrow(memory.data() + 64, DType::f32, bad.output)};
    const auto into = runtime.run_into(bad.op, bad.inputs, outputs, bad.attributes);
    ASSERT_FALSE(into.ok());
    for (int i = 0; i < 64; ++i) {
      ASSERT_EQ(memory[i], 0xab);
      ASSERT_EQ(memory[64 + bytes + i], 0xab);
    }
    const Tensor dy = Tensor::of(DType::f32, {2, 2}, std::vector<float>{1, 2, 3, 4});
    const auto good =
        runtime.run("GatherGrad", std::vector<Tensor>{ints({4, 2}), ints({-1, -1}), dy}, {{"axis", int64_t{0}}});
    ASSERT_TRUE(good.ok()) << good.error().what();
    EXPECT_EQ(static_cast<const float*>(good.value()[0].data())[6], 4);
    EXPECT_EQ(static_cast<const float*>(good.value()[0].data())[7], 6);
  }
}

INSTANTIATE_TEST_SUITE_P(Calls, BadInput, testing::ValuesIn(bad_calls()),
                         [](const testing::TestParamInfo<BadCall>& info) {
                           return info.param.op + "_" + info.param.name;
                         });

TEST(BadInput, OverlapIsRefused) {
  Runtime runtime({.threads = 1});
  std::vector<float> memory(16);
  const Tensor dy = Tensor::borrow(memory.data(), DType::f32, {2, 2});
  std::vector<Tensor> outputs{Tensor::borrow(memory.data() + 2, DType::f32, {4, 2})};
  const auto done = runtime.run_into("GatherGrad", std::vector<Tensor>{ints({4, 2}), ints({0, 1}), dy}, outputs,
                                     {{"axis", int64_t{0}}});
  ASSERT_FALSE(done.ok());
  EXPECT_EQ(done.error().code(), ErrorCode::invalid_argument) << done.error().what();
}

}  // namespace
}  // namespace gradloom
