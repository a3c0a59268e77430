// GRUTraining and GRUGrad: the forward pass against a plain reference, gradients against its finite differences over
// all options; subsets of outputs, empty extents, storage types, padding.
#include <gtest/gtest.h>

#include <cstring>

#include "tests/ops/gru_harness.h"

namespace gradloom {
namespace {

using namespace testing_gru;

double loss(const States& states, const Upstream& up) {
  double sum = 0;
  for (size_t i = 0; i < up.all.size(); ++i) sum += up.all[i] * states.all[i];
  for (size_t i = 0; i < up.last.size(); ++i) sum += up.last[i] * states.last[i];
  return sum;
}

Values finite_differences(const GruCase& s, const Weights& weights, Values Weights::*of, const Upstream& up) {
  constexpr double step = 1e-6;
  Weights w = weights;
  Values gradient((w.*of).size());
  for (size_t i = 0; i < gradient.size(); ++i) {
    const double old = (w.*of)[i];
    (w.*of)[i] = old + step;
    const double above = loss(forward(s, w), up);
    (w.*of)[i] = old - step;
    const double below = loss(forward(s, w), up);
    (w.*of)[i] = old;
    gradient[i] = (above - below) / (2 * step);
  }
  return gradient;
}

// Padding is NaN: it is not read, or does not affect any result.
void poison_padding(const GruCase& s, Values& values, int64_t width) {
  if (s.lens.empty() || values.empty()) return;
  const int64_t row = width / s.batch;
  for (int64_t p = 0; p < s.steps; ++p)
    for (int64_t k = 0; k < width; ++k)
      if (p >= s.lens[k / row % s.batch]) values[p * width + k] = nan_value;
}
void poison_padded_states(const GruCase& s, Values& values) {
  if (s.lens.empty() || values.empty()) return;
  const int64_t d = s.directions(), h = s.hidden;
  for (int64_t i = 0; i < static_cast<int64_t>(values.size()); ++i) {
    const int64_t n = i / h % s.batch, p = i / (h * s.batch * d);
    if (p >= s.lens[n]) values[i] = nan_value;
  }
}

void check(Runtime& runtime, const GruCase& s, const Upstream& up, uint64_t seed) {
  SCOPED_TRACE(describe(s, up));
  const Weights weights = random_weights(s, seed);
  const States want = forward(s, weights);
  Weights given = weights;
  poison_padding(s, given.x, s.batch * s.inputs);
  Upstream given_up = up;
  poison_padded_states(s, given_up.all);
  const Attributes attributes = attributes_of(s);
  const std::vector<Tensor> in = inputs_of(s, given, DType::f64);
  const std::vector<Tensor> out = must(runtime.run("GRUTraining", in, attributes));
  expect_near(numbers(out[0]), want.all, 1e-12, "HAll");
  expect_near(numbers(out[1]), want.last, 1e-12, "HFinal");
  expect_near(numbers(out[2]), want.gates, 1e-12, "ZRH");
  const std::vector<Tensor> grads =
      must(runtime.run("GRUGrad", grad_inputs(s, in, out, given_up, DType::f64), attributes));
  GruCase differences = s;  // gradients of an absent bias and initial state are taken at zero
  Weights at = weights;
  if (!s.bias) at.b.assign(at.b.size(), 0);
  if (!s.first_state) at.h0.assign(at.h0.size(), 0);
  differences.bias = differences.first_state = true;
  Values Weights::*const members[] = {&Weights::x, &Weights::w, &Weights::r, &Weights::b, &Weights::h0};
  const char* names[] = {"dX", "dW", "dR", "dB", "dH0"};
  for (int o = 0; o < 5; ++o)
    expect_near(numbers(grads[o]), finite_differences(differences, at, members[o], up), 2e-7, names[o]);
}

const std::vector<std::string> all_activations{"Sigmoid", "Tanh",      "Relu", "HardSigmoid", "Softsign",
                                               "Affine",  "LeakyRelu", "Elu",  "ScaledTanh",  "ThresholdedRelu",
                                               "Softplus"};

// Every combination of the options; the activations rotate, so that each is combined with each option.
TEST(Gru, GradientsAreThoseOfFiniteDifferences) {
  Runtime runtime({.target = TargetKind::interpreter});
  uint64_t count = 0;
  for (const char* direction : {"forward", "reverse", "bidirectional"})
    for (const bool linear : {false, true})
      for (const bool lens : {false, true})
        for (const bool bias : {false, true})
          for (const bool first_state : {false, true})
            for (const double clip : {0.0, 0.7})
              for (const int upstream : {1, 2, 3}) {
                GruCase s{
                    .direction = direction, .linear = linear, .bias = bias, .first_state = first_state, .clip = clip};
                if (lens) s.lens = {2, 0, 3};
                if (count % 4 != 0)
                  for (int64_t i = 0; i < 2 * s.directions(); ++i) {
                    s.activations.push_back(all_activations[(count * 5 + i * 3 + count / 11) % all_activations.size()]);
                    const bool negative = s.activations.back() == "ThresholdedRelu" && count % 2 == 0;
                    s.alpha.push_back(negative ? -0.3 : 0.4 + 0.1 * static_cast<double>((count + i) % 5));
                    s.beta.push_back(0.6 - 0.1 * static_cast<double>((count + i) % 4));
                  }
                const int64_t states = s.directions() * s.batch * s.hidden;
                Upstream up;
                if (upstream & 1) up.all = random_values(s.steps * states, 1000 + count, 1);
                if (upstream & 2) up.last = random_values(states, 2000 + count, 1);
                check(runtime, s, up, 10 * count);
                if (HasFatalFailure()) return;
                ++count;
              }
  EXPECT_EQ(count, 288u);
}

// Each function as f and as g, its derivative at values and kinks that occur in training.
TEST(Gru, EveryActivationAsGateAndAsCandidate) {
  Runtime runtime;
  for (size_t i = 0; i < all_activations.size(); ++i)
    for (const bool linear : {false, true}) {
      GruCase s{.steps = 2, .inputs = 3, .hidden = 3, .linear = linear};
      s.activations = {all_activations[i], all_activations[(i + 1) % all_activations.size()]};
      s.alpha = {0.7, 0.3};
      s.beta = {0.4, 0.2};
      const int64_t states = s.batch * s.hidden;
      check(runtime, s, {random_values(s.steps * states, 5 + i, 1), random_values(states, 6 + i, 1)}, 400 + i);
      if (HasFatalFailure()) return;
    }
}

TEST(Gru, ActivationNamesInAnyCaseAndDefaults) {
  Runtime runtime;
  GruCase s{.activations = {"HardSigmoid", "Elu"}, .alpha = {0.2, 1.0}, .beta = {0.5, 0}};
  const std::vector<Tensor> in = inputs_of(s, random_weights(s, 3), DType::f64);
  const Attributes given = attributes_of(s);
  Attributes defaults{{"activations", std::vector<std::string>{"hARDsigmoid", "ELU"}}};  // nor hidden_size
  const std::vector<Tensor> a = must(runtime.run("GRUTraining", in, given)),
                            b = must(runtime.run("GRUTraining", in, defaults));
  for (int o = 0; o < 3; ++o) EXPECT_EQ(numbers(a[o]), numbers(b[o]));
}

// Any of dX, dW, dR, dB and dH0 may be omitted (a frozen W among them): the others keep their bits, and no input
// changes.
TEST(Gru, AnySubsetOfTheGradients) {
  Runtime runtime;
  for (const bool linear : {false, true}) {
    const Trained call = trained(runtime,
                                 {.steps = 4,
                                  .batch = 2,
                                  .inputs = 3,
                                  .hidden = 5,
                                  .direction = "bidirectional",
                                  .linear = linear,
                                  .lens = {4, 1}},
                                 DType::f32, 21);
    const std::vector<Values> before = {numbers(call.grad_in[6]), numbers(call.grad_in[7])};
    const std::vector<Tensor> all = must(runtime.run("GRUGrad", call.grad_in, call.attributes));
    for (uint32_t wanted = 1; wanted < 32; ++wanted) {
      const std::vector<Tensor> some =
          must(runtime.run("GRUGrad", call.grad_in, call.attributes, {.outputs_wanted = wanted}));
      for (int o = 0; o < 5; ++o) {
        ASSERT_EQ(some[o].present(), (wanted >> o & 1) != 0);
        if (!some[o].present()) continue;
        EXPECT_EQ(numbers(some[o]), numbers(all[o])) << "output " << o << " of " << wanted;
      }
    }
    EXPECT_EQ(numbers(call.grad_in[6]), before[0]);
    EXPECT_EQ(numbers(call.grad_in[7]), before[1]);
  }
}

TEST(Gru, NoFinalState) {
  Runtime runtime;
  const Trained call = trained(runtime, {}, DType::f32, 2);
  const std::vector<Tensor> out = must(runtime.run("GRUTraining", call.in, call.attributes, {.outputs_wanted = 0b101}));
  EXPECT_FALSE(out[1].present());
  EXPECT_EQ(numbers(out[0]), numbers(call.out[0]));
  EXPECT_EQ(numbers(out[2]), numbers(call.out[2]));
}

TEST(Gru, NoUpstreamGradientGivesZeros) {
  Runtime runtime;
  Trained call = trained(runtime, {.direction = "reverse"}, DType::f32, 2);
  call.grad_in[8] = call.grad_in[9] = Tensor();
  for (const Tensor& gradient : must(runtime.run("GRUGrad", call.grad_in, call.attributes)))
    for (const double v : numbers(gradient)) EXPECT_EQ(v, 0);
}

TEST(Gru, EmptyExtents) {
  for (const TargetKind target : {TargetKind::interpreter, TargetKind::automatic}) {
    Runtime runtime({.target = target});
    for (const bool linear : {false, true})
      for (const int empty : {0, 1, 2})
        for (const double clip : {0.0, 0.5}) {
          SCOPED_TRACE(empty);
          GruCase s{.direction = "bidirectional", .linear = linear, .clip = clip};
          (empty == 0 ? s.steps : empty == 1 ? s.batch : s.inputs) = 0;
          const Trained call = trained(runtime, s, DType::f64, 31);
          const States want = forward(s, random_weights(s, 31));
          expect_near(numbers(call.out[0]), want.all, 1e-12, "HAll");
          expect_near(numbers(call.out[1]), want.last, 1e-12, "HFinal");
          const std::vector<Tensor> grads = must(runtime.run("GRUGrad", call.grad_in, call.attributes));
          if (empty == 2) continue;  // finite differences cover sums over inputs; this checks only that nothing fails
          for (int o = 0; o < 4; ++o)
            for (const double v : numbers(grads[o])) EXPECT_EQ(v, 0);
          if (empty != 0) continue;
          EXPECT_EQ(numbers(grads[4]), numbers(call.grad_in[9]));  // dH0 is dHFinal
        }
  }
}

// f16 and bf16 are storage types: from the same saved values, the f32 gradients rounded once.
TEST(Gru, StorageTypesRoundOnce) {
  Runtime runtime;
  for (const DType t : {DType::f16, DType::bf16})
    for (const bool linear : {false, true}) {
      SCOPED_TRACE(to_string(t));
      const Trained call = trained(runtime,
                                   {.steps = 5,
                                    .batch = 3,
                                    .inputs = 7,
                                    .hidden = 6,
                                    .direction = "bidirectional",
                                    .linear = linear,
                                    .lens = {5, 2, 0}},
                                   t, 41);
      std::vector<Tensor> wide;
      for (const Tensor& tensor : call.grad_in)
        wide.push_back(!tensor.present() || tensor.dtype() == DType::i32
                           ? tensor
                           : Tensor::of(DType::f32, tensor.dims(), numbers(tensor)));
      const std::vector<Tensor> narrow = must(runtime.run("GRUGrad", call.grad_in, call.attributes)),
                                want = must(runtime.run("GRUGrad", wide, call.attributes));
      for (int o = 0; o < 5; ++o) {
        ASSERT_EQ(narrow[o].dtype(), t);
        EXPECT_EQ(numbers(narrow[o]), numbers(Tensor::of(t, want[o].dims(), numbers(want[o])))) << o;
      }
      wide.resize(6);
      const std::vector<Tensor> forward_wide = must(runtime.run("GRUTraining", wide, call.attributes));
      const double step = t == DType::f16 ? 0x1p-10 : 0x1p-7;
      expect_near(numbers(call.out[0]), numbers(forward_wide[0]), 4 * step, "HAll");
    }
}

TEST(Gru, GatesStayInRangeAndNaNsReachEveryGradient) {
  Runtime runtime;
  GruCase s{.steps = 3, .batch = 1, .inputs = 1, .hidden = 2};
  Weights w = random_weights(s, 51);
  w.x = {30, -1e30, std::numeric_limits<double>::infinity()};
  const std::vector<Tensor> out = must(runtime.run("GRUTraining", inputs_of(s, w, DType::f32), attributes_of(s)));
  const Values gates = numbers(out[2]);
  for (size_t i = 0; i < gates.size(); ++i) {
    EXPECT_LE(gates[i], 1);
    EXPECT_GE(gates[i], i / 2 % 3 == 2 ? -1 : 0) << i;
  }
  for (const double v : numbers(out[0])) EXPECT_TRUE(std::isfinite(v));
  Trained call = trained(runtime, s, DType::f32, 52);
  Values up = numbers(call.grad_in[8]);
  up.back() = nan_value;
  call.grad_in[8] = Tensor::of(DType::f32, call.grad_in[8].dims(), up);
  for (const Tensor& gradient : must(runtime.run("GRUGrad", call.grad_in, call.attributes))) {
    bool found = false;
    for (const double v : numbers(gradient)) found |= std::isnan(v);
    EXPECT_TRUE(found);
  }
}

// Padding stays 0 regardless of the weights.
TEST(Gru, PaddedGradientsAreZeroBesideInfiniteWeights) {
  Runtime runtime;
  Trained call = trained(runtime, {.lens = {1, 3, 0}}, DType::f32, 61);
  Values w = numbers(call.grad_in[1]);
  w[0] = std::numeric_limits<double>::infinity();
  call.grad_in[1] = Tensor::of(DType::f32, call.grad_in[1].dims(), w);
  const Values dx = numbers(must(runtime.run("GRUGrad", call.grad_in, call.attributes))[0]);
  for (int64_t p = 0; p < 3; ++p)
    for (int64_t n = 0; n < 3; ++n)
      for (int64_t i = 0; i < 2; ++i)
        EXPECT_TRUE(p < call.setup.lens[n] || dx[(p * 3 + n) * 2 + i] == 0) << p << ", " << n;
}

TEST(Gru, AccumulatesIntoGradients) {
  Runtime runtime;
  const Trained call =
      trained(runtime, {.direction = "bidirectional", .linear = true, .lens = {3, 1, 2}}, DType::f64, 71);
  const std::vector<Tensor> fresh = must(runtime.run("GRUGrad", call.grad_in, call.attributes));
  std::vector<Tensor> sums;
  for (const Tensor& gradient : fresh)
    sums.push_back(Tensor::of(DType::f64, gradient.dims(), Values(gradient.elements(), 2.5)));
  ASSERT_TRUE(runtime.run_into("GRUGrad", call.grad_in, sums, call.attributes, {.accumulate = true}).ok());
  for (int o = 0; o < 5; ++o) {
    Values want = numbers(fresh[o]);
    for (double& v : want) v += 2.5;
    EXPECT_EQ(numbers(sums[o]), want) << o;
  }
}

TEST(Gru, StridedOperands) {
  Runtime runtime;
  const Trained call =
      trained(runtime, {.steps = 4, .batch = 3, .inputs = 5, .hidden = 3, .lens = {4, 2, 3}}, DType::f32, 81);
  std::vector<testing_ops::Strided> copies;
  copies.reserve(10);
  std::vector<Tensor> strided;
  for (const Tensor& tensor : call.grad_in) {
    if (tensor.present()) copies.push_back(testing_ops::strided_copy(tensor));
    strided.push_back(tensor.present() ? copies.back().tensor : Tensor());
  }
  const std::vector<Tensor> want = must(runtime.run("GRUGrad", call.grad_in, call.attributes)),
                            got = must(runtime.run("GRUGrad", strided, call.attributes));
  for (int o = 0; o < 5; ++o) EXPECT_EQ(numbers(got[o]), numbers(want[o])) << o;
  strided.resize(6);
  const std::vector<Tensor> out = must(runtime.run("GRUTraining", strided, call.attributes));
  for (int o = 0; o < 3; ++o) EXPECT_EQ(numbers(out[o]), numbers(call.out[o])) << o;
}

}  // namespace
}  // namespace gradloom
