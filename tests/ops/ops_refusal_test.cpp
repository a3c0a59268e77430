// Refusals of the ops with their exact messages: op, argument, position, value and the allowed range, on one line.
#include <gtest/gtest.h>

#include "gradloom/op.h"
#include "tests/ops/ops_harness.h"

namespace gradloom {
namespace {

using namespace testing_ops;

Tensor ints(const std::vector<int64_t>& values) {
  return Tensor::of(DType::i64, {static_cast<int64_t>(values.size())}, values);
}
Tensor floats(const Dims& dims) { return filled(DType::f32, dims, 1); }

void refused(const char* name, const std::vector<Tensor>& inputs, const Attributes& attributes, ErrorCode code,
             const std::string& message, const How& how = {}) {
  try {
    run(*find_op(name), inputs, attributes, how);
    ADD_FAILURE() << "not refused; expected: " << message;
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()), message);
    EXPECT_EQ(error.code(), code) << message;
    EXPECT_EQ(message.find('\n'), std::string::npos);
  }
}

constexpr ErrorCode invalid = ErrorCode::invalid_argument, range = ErrorCode::out_of_range,
                    unsupported = ErrorCode::unsupported;
const Attributes none;

TEST(OpRefusals, WhatEveryOpChecks) {
  refused("GatherGrad", {ints({3})}, none, invalid, "GatherGrad: input 1 (indices) is missing; it is required");
  refused("GatherGrad", {ints({3}), floats({1}), floats({1})}, none, invalid,
          "GatherGrad: input 1 (indices) has dtype float32; allowed: int32, int64");
  refused("GatherGrad", {ints({3}), ints({1}), floats({1})}, {{"axes", int64_t{0}}}, invalid,
          "GatherGrad: unknown attribute 'axes'; allowed: axis");
  refused("GatherGrad", {ints({3}), ints({1}), floats({1})}, {{"axis", 0.0}}, invalid,
          "GatherGrad: attribute axis is of type float; it must be of type int");
  refused("BroadcastGrad", {floats({1}), ints({1}), ints({1})}, none, invalid,
          "BroadcastGrad: 3 inputs given; at most 2 are allowed (dY, shape)");
  How unwanted;
  unwanted.wanted = 0;
  refused("BroadcastGrad", {floats({1}), ints({1})}, none, invalid,
          "BroadcastGrad: output 0 (dX) is not asked for; it is required", unwanted);
  refused("BroadcastGrad", {floats({1}), ints({-1})}, none, invalid,
          "BroadcastGrad: input 1 (shape)[0] is -1; dims must be 0 or more");
  refused("BroadcastGrad", {floats({1}), Tensor::of(DType::i64, {1, 1, 1}, std::vector<int64_t>{1})}, none, invalid,
          "BroadcastGrad: input 1 (shape) has rank 3 (shape [1,1,1]); it must have rank 1 or 2");
  refused("GatherGrad", {ints({int64_t{1} << 40, int64_t{1} << 40}), ints({1}), floats({1, 1})}, none, invalid,
          "GatherGrad: input 0 (shape): shape [1099511627776,1099511627776] of 4-byte elements needs more than 2^63 - "
          "1 bytes");
  refused("BroadcastGrad", {floats({1}), ints(std::vector<int64_t>(17, 1))}, none, unsupported,
          "BroadcastGrad: input 1 (shape) has 17 values; at most 16 are supported");
}

TEST(OpRefusals, SliceGrad) {
  const Tensor shape = ints({4, 2}), dy = floats({1, 2});
  refused("SliceGrad", {dy, shape, ints({0, 0}), ints({1, 2}), ints({0})}, none, invalid,
          "SliceGrad: input 4 (axes) has 1 values; it must have 2, as many as starts");
  refused("SliceGrad", {dy, shape, ints({0}), ints({1, 2})}, none, invalid,
          "SliceGrad: input 3 (ends) has 2 values; it must have 1, as many as starts");
  refused("SliceGrad", {dy, shape, ints({0}), ints({1}), ints({0}), ints({1, 1})}, none, invalid,
          "SliceGrad: input 5 (steps) has 2 values; it must have 1, as many as starts");
  refused("SliceGrad", {dy, shape, ints({0, 0}), ints({1, 1}), ints({0, -2})}, none, invalid,
          "SliceGrad: input 4 (axes)[1] is -2; axis 0 is already given, and each may be given once");
  refused("SliceGrad", {dy, shape, ints({0}), ints({1}), ints({2})}, none, invalid,
          "SliceGrad: input 4 (axes)[0] is 2; it must be in [-2, 1] for rank 2");
  refused("SliceGrad", {dy, shape, ints({0}), ints({1}), ints({0}), ints({0})}, none, invalid,
          "SliceGrad: input 5 (steps)[0] is 0; a step must not be 0");
  refused("SliceGrad", {dy, shape, ints({0, 0, 0}), ints({1, 1, 1})}, none, invalid,
          "SliceGrad: input 2 (starts) has 3 values; without axes at most 2, the rank of shape, are allowed");
  refused("SliceGrad", {dy, shape, Tensor::of(DType::i64, {1, 1}, std::vector<int64_t>{0}), ints({1})}, none, invalid,
          "SliceGrad: input 2 (starts) has rank 2 (shape [1,1]); it must have rank 1");
  refused("SliceGrad", {floats({5}), ints({4}), ints({0}), ints({2})}, none, invalid,
          "SliceGrad: input 0 (dY) has shape [5]; the slice of shape [4] has shape [2]");
  How add;
  add.accumulate = true;
  refused("SliceGrad", {filled(DType::boolean, {2}, 1), ints({4}), ints({0}), ints({2})}, none, unsupported,
          "SliceGrad: accumulate with dtype bool; any other dtype can be accumulated", add);
}

TEST(OpRefusals, Gathers) {
  const Tensor shape = ints({4, 2});
  refused("GatherGrad", {shape, ints({0}), floats({1, 2})}, {{"axis", int64_t{2}}}, invalid,
          "GatherGrad: attribute axis is 2; it must be in [-2, 1] for rank 2");
  refused("GatherGrad", {ints({}), ints({0}), floats({})}, none, invalid,
          "GatherGrad: attribute axis is 0; rank 0 has no axes");
  refused(
      "GatherGrad", {shape, ints({0, 1}), floats({4, 2})}, none, invalid,
      "GatherGrad: input 2 (dY) has shape [4,2]; for shape [4,2], indices of shape [2] and axis 0 it must be [2,2]");
  refused("GatherGrad", {ints({0, 2}), ints({0}), floats({1, 2})}, none, range,
          "GatherGrad: input 1 (indices) has 1 values, but dim 0 of shape [0,2] is 0, so that no index is allowed");
  refused("GatherElementsGrad", {floats({2, 3}), ints({2, 3}), ints({0, 1, 2})}, none, invalid,
          "GatherElementsGrad: input 2 (indices) has rank 1 (shape [3]); it must have rank 2, as shape [2,3] says");
  refused("GatherElementsGrad", {floats({3, 2}), ints({3, 3}), filled(DType::i64, {2, 3}, 1)}, none, invalid,
          "GatherElementsGrad: input 0 (dY) has shape [3,2]; it must have indices' shape [2,3]");
  refused("GatherElementsGrad", {floats({2, 4}), ints({2, 3}), filled(DType::i64, {2, 4}, 1)}, none, invalid,
          "GatherElementsGrad: input 2 (indices) has 4 in dim 1; off axis 0 it must be at most 3, as shape [2,3] says");
}

TEST(OpRefusals, BadIndexValuesNameTheFirstOne) {
  for (const bool any_shape : {false, true}) {
    const How how{.any_shape = any_shape};
    refused("GatherGrad", {ints({4, 2}), ints({0, -5, 4}), floats({3, 2})}, none, range,
            "GatherGrad: input 1 (indices)[1] is -5; it must be in [-4, 3]", how);
    refused("GatherElementsGrad",
            {floats({2, 3}), ints({2, 4}), Tensor::of(DType::i32, {2, 3}, std::vector<int64_t>{0, 1, 2, 0, 4, 9})},
            {{"axis", int64_t{1}}}, range, "GatherElementsGrad: input 2 (indices)[1,1] is 4; it must be in [-4, 3]",
            how);
  }
}

// A bad index value is out_of_range (SEMANTICS.md, as ORT checks all indices before it writes), and whether it is one
// depends on the dim `axis` alone: that dX has no elements because of another dim does not make it good. dX's own dim
// being 0 is refused likewise.
TEST(OpRefusals, ABadIndexIsOneThoughNothingIsWritten) {
  for (const bool accumulate : {false, true})
    for (const bool any_shape : {false, true})
      for (const bool scheduled : {false, true}) {
        const How how{.any_shape = any_shape, .scheduled = scheduled, .accumulate = accumulate};
        refused("GatherGrad", {ints({4, 0}), ints({0, -4, 3, 4, 9}), floats({5, 0})}, none, range,
                "GatherGrad: input 1 (indices)[3] is 4; it must be in [-4, 3]", how);
        refused(
            "GatherGrad",
            {ints({0, 4, 3}), Tensor::of(DType::i32, {2, 2}, std::vector<int32_t>{0, 1, -5, 2}), floats({0, 2, 2, 3})},
            {{"axis", int64_t{1}}}, range, "GatherGrad: input 1 (indices)[1,0] is -5; it must be in [-4, 3]", how);
        const std::vector<Tensor> good{
            ints({4, 0}), Tensor::of(DType::i64, {2, 1, 2}, std::vector<int64_t>{0, -4, 3, -1}), floats({2, 1, 2, 0})};
        EXPECT_EQ(to_string(run(*find_op("GatherGrad"), good, none, how)[0].dims()), "[4,0]");
      }
}

TEST(OpRefusals, Broadcasts) {
  refused("BroadcastGradientArgs", {ints({4, 2}), ints({4, 3})}, none, invalid,
          "BroadcastGradientArgs: input 0 (a_shape) [4,2] and input 1 (b_shape) [4,3] do not broadcast: at axis 1 2 "
          "meets 3; the dims must be equal or one of "
          "them 1");
  refused("BroadcastGradientArgs", {ints({0}), ints({2})}, none, invalid,
          "BroadcastGradientArgs: input 0 (a_shape) [0] and input 1 (b_shape) [2] do not broadcast: at axis 0 0 meets "
          "2; the dims must be equal or one of them 1");
  refused("BroadcastGradientArgs", {Tensor::of(DType::i64, {1, 1}, std::vector<int64_t>{0}), ints({2})}, none, invalid,
          "BroadcastGradientArgs: input 0 (a_shape) has rank 2 (shape [1,1]); it must have rank 1");
  How add;
  add.accumulate = true;
  refused("BroadcastGradientArgs", {ints({1}), ints({2})}, none, unsupported,
          "BroadcastGradientArgs: accumulate; axes cannot be added to", add);
  refused("BroadcastGrad", {floats({3}), ints({1, 3})}, none, invalid,
          "BroadcastGrad: input 0 (dY) has rank 1 (shape [3]); shape [1,3] needs at least rank 2");
  refused("BroadcastGrad", {floats({2, 3}), ints({2})}, none, invalid,
          "BroadcastGrad: input 0 (dY) has 3 in dim 1 (shape [2,3]); for shape [2] it must be 2");
}

}  // namespace
}  // namespace gradloom
