// Refusals of the GRU ops with their exact messages, and that the next call succeeds.
#include <gtest/gtest.h>

#include <functional>

#include "tests/ops/gru_harness.h"

namespace gradloom {
namespace {

using namespace testing_gru;

struct Refusal {
  const char* name;
  std::function<void(Trained&)> spoil;
  const char* message;
  ErrorCode code = ErrorCode::invalid_argument;
  bool grad = true;
};
void PrintTo(const Refusal& r, std::ostream* out) { *out << r.name; }

Tensor zeros(const Dims& dims, DType t = DType::f32) { return Tensor::of(t, dims, Values(element_count(dims))); }
void set(Trained& call, const char* name, Attribute value) { call.attributes[name] = std::move(value); }
using Names = std::vector<std::string>;

const Refusal refusals[] = {
    {"x_rank",
     [](Trained& c) {
       c.grad_in[0] = zeros({3, 6});
     },
     "GRUGrad: input 0 (X) has rank 2 (shape [3,6]); it must have rank 3: [S, N, I]"},
    {"w_shape",
     [](Trained& c) {
       c.grad_in[1] = zeros({1, 6, 3});
     },
     "GRUGrad: input 1 (W) has shape [1,6,3]; it must have [1,6,2]: [D, 3H, I]"},
    {"r_shape",
     [](Trained& c) {
       c.grad_in[2] = zeros({1, 4, 2});
     },
     "GRUGrad: input 2 (R) has shape [1,4,2]; it must have [1,6,2]: [D, 3H, H]"},
    {"b_shape", [](Trained& c) { c.grad_in[3] = zeros({12}); },
     "GRUGrad: input 3 (B) has shape [12]; it must have [1,12]: [D, 6H]"},
    {"lens_shape", [](Trained& c) { c.grad_in[4] = zeros({2}, DType::i32); },
     "GRUGrad: input 4 (sequence_lens) has shape [2]; it must have [3]: [N]"},
    {"lens_dtype", [](Trained& c) { c.grad_in[4] = zeros({3}, DType::i64); },
     "GRUGrad: input 4 (sequence_lens) has dtype int64; allowed: int32"},
    {"lens_value",
     [](Trained& c) {
       c.grad_in[4] = Tensor::of(DType::i32, {3}, std::vector<int>{3, -1, 4});
     },
     "GRUGrad: input 4 (sequence_lens)[1] is -1; it must be in [0, 3], for X of shape [3,3,2]"},
    {"h0_shape",
     [](Trained& c) {
       c.grad_in[5] = zeros({3, 2});
     },
     "GRUGrad: input 5 (initial_h) has shape [3,2]; it must have [1,3,2]: [D, N, H]"},
    {"hall_shape",
     [](Trained& c) {
       c.grad_in[6] = zeros({3, 1, 2, 2});
     },
     "GRUGrad: input 6 (HAll) has shape [3,1,2,2]; it must have [3,1,3,2]: [S, D, N, H]"},
    {"zrh_shape",
     [](Trained& c) {
       c.grad_in[7] = zeros({3, 1, 3, 2});
     },
     "GRUGrad: input 7 (ZRH) has shape [3,1,3,2]; it must have [3,1,3,6]: [S, D, N, 3H]"},
    {"dhall_shape",
     [](Trained& c) {
       c.grad_in[8] = zeros({3, 3, 2});
     },
     "GRUGrad: input 8 (dHAll) has shape [3,3,2]; it must have [3,1,3,2]: [S, D, N, H]"},
    {"dhfinal_shape",
     [](Trained& c) {
       c.grad_in[9] = zeros({1, 3, 1});
     },
     "GRUGrad: input 9 (dHFinal) has shape [1,3,1]; it must have [1,3,2]: [D, N, H]"},
    {"mixed_dtypes",
     [](Trained& c) {
       c.grad_in[2] = zeros({1, 6, 2}, DType::f64);
     },
     "GRUGrad: input 2 (R) has dtype float64; it must have X's, float32"},
    {"missing", [](Trained& c) { c.grad_in[7] = Tensor(); }, "GRUGrad: input 7 (ZRH) is missing; it is required"},
    {"hidden_size", [](Trained& c) { set(c, "hidden_size", int64_t{0}); },
     "GRUGrad: attribute hidden_size is 0; it must be greater than 0"},
    {"hidden_size_of_r", [](Trained& c) { set(c, "hidden_size", int64_t{3}); },
     "GRUGrad: input 1 (W) has shape [1,6,2]; it must have [1,9,2]: [D, 3H, I]"},
    {"direction", [](Trained& c) { set(c, "direction", std::string("backward")); },
     "GRUGrad: attribute direction is \"backward\"; it must be forward, reverse or bidirectional"},
    {"directions", [](Trained& c) { set(c, "direction", std::string("bidirectional")); },
     "GRUGrad: input 1 (W) has shape [1,6,2]; it must have [2,6,2]: [D, 3H, I]"},
    {"linear", [](Trained& c) { set(c, "linear_before_reset", int64_t{2}); },
     "GRUGrad: attribute linear_before_reset is 2; it must be 0 or 1"},
    {"clip", [](Trained& c) { set(c, "clip", -1.0); }, "GRUGrad: attribute clip is -1; it must be greater than 0"},
    {"clip_type", [](Trained& c) { set(c, "clip", std::string("1")); },
     "GRUGrad: attribute clip is of type string; it must be of type float"},
    {"activation_count", [](Trained& c) { set(c, "activations", Names{"Tanh"}); },
     "GRUGrad: attribute activations has 1 names; it must have 2: f and g for each direction"},
    {"activation_name",
     [](Trained& c) {
       set(c, "activations", Names{"Sigmoid", "Swish"});
     },
     "GRUGrad: attribute activations[1] is \"Swish\"; allowed: Affine, Relu, LeakyRelu, ThresholdedRelu, Tanh, "
     "ScaledTanh, Sigmoid, HardSigmoid, Elu, Softsign, "
     "Softplus"},
    {"negative_slope",
     [](Trained& c) {
       set(c, "activations", Names{"Sigmoid", "LeakyRelu"});
       set(c, "activation_alpha", Values{-0.5});
     },
     "GRUGrad: attribute activation_alpha is -0.5 for LeakyRelu; a negative one is not supported",
     ErrorCode::unsupported},
    {"missing_alpha",
     [](Trained& c) {
       set(c, "activations", Names{"Sigmoid", "ScaledTanh"});
     },
     "GRUGrad: attribute activation_alpha has no value for ScaledTanh, which has no default"},
    {"surplus_alpha", [](Trained& c) { set(c, "activation_alpha", Values{0.5}); },
     "GRUGrad: attribute activation_alpha has 1 values; the activations take 0"},
    {"surplus_beta",
     [](Trained& c) {
       set(c, "activation_beta", Values{0.5, 1});
     },
     "GRUGrad: attribute activation_beta has 2 values; the activations take 0"},
    {"unknown_attribute", [](Trained& c) { set(c, "layout", int64_t{1}); },
     "GRUGrad: unknown attribute 'layout'; allowed: activations, activation_alpha, activation_beta, clip, direction, "
     "hidden_size, linear_before_reset"},
    {"training_w_shape",
     [](Trained& c) {
       c.in[1] = zeros({1, 6, 1});
     },
     "GRUTraining: input 1 (W) has shape [1,6,1]; it must have [1,6,2]: [D, 3H, I]", ErrorCode::invalid_argument,
     false},
    {"training_lens_value",
     [](Trained& c) {
       c.in[4] = Tensor::of(DType::i32, {3}, std::vector<int>{3, 3, 4});
     },
     "GRUTraining: input 4 (sequence_lens)[2] is 4; it must be in [0, 3], for X of shape [3,3,2]",
     ErrorCode::invalid_argument, false},
};

class GruRefusal : public ::testing::TestWithParam<Refusal> {};
INSTANTIATE_TEST_SUITE_P(All, GruRefusal, ::testing::ValuesIn(refusals),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_P(GruRefusal, SaysWhatWasGivenAndWhatIsAllowed) {
  const Refusal& refusal = GetParam();
  Runtime runtime({.target = TargetKind::interpreter});
  const Trained good = trained(runtime, {}, DType::f32, 91);
  Trained call = good;
  refusal.spoil(call);
  const auto result = refusal.grad ? runtime.run("GRUGrad", call.grad_in, call.attributes)
                                   : runtime.run("GRUTraining", call.in, call.attributes);
  ASSERT_FALSE(result.ok());
  EXPECT_STREQ(result.error().what(), refusal.message);
  EXPECT_EQ(result.error().code(), refusal.code);
  EXPECT_TRUE(runtime.run("GRUGrad", good.grad_in, good.attributes).ok());  // the next call works
}

TEST(Gru, TrainingDoesNotAccumulate) {
  Runtime runtime({.target = TargetKind::interpreter});
  Trained call = trained(runtime, {}, DType::f32, 92);
  const auto result = runtime.run_into("GRUTraining", call.in, call.out, call.attributes, {.accumulate = true});
  ASSERT_FALSE(result.ok());
  EXPECT_STREQ(result.error().what(), "GRUTraining: accumulate; its outputs are no gradients");
  EXPECT_EQ(result.error().code(), ErrorCode::unsupported);
}

}  // namespace
}  // namespace gradloom
