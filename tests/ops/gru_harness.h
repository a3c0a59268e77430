#pragma once
// Calls of GRUTraining and GRUGrad from a case of gru_reference.h, shared by the GRU tests.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "gradloom/runtime.h"
#include "ir/scalar_math.h"
#include "tests/ops/gru_reference.h"
#include "tests/ops/ops_harness.h"

namespace gradloom::testing_gru {

using testing_ops::bits_at;

constexpr double nan_value = std::numeric_limits<double>::quiet_NaN();

inline Values numbers(const Tensor& dense) {
  Values values(dense.elements());
  for (int64_t i = 0; i < dense.elements(); ++i) values[i] = ir::double_from_bits(dense.dtype(), bits_at(dense, i));
  return values;
}

inline Values random_values(int64_t count, uint64_t seed, double scale) {
  std::mt19937_64 engine(seed);
  std::uniform_real_distribution<double> uniform(-scale, scale);
  Values values(count);
  for (double& v : values) v = uniform(engine);
  return values;
}

inline Weights random_weights(const GruCase& s, uint64_t seed) {
  const int64_t d = s.directions(), h = s.hidden;
  return {random_values(s.steps * s.batch * s.inputs, seed, 1.2), random_values(d * 3 * h * s.inputs, seed + 1, 0.9),
          random_values(d * 3 * h * h, seed + 2, 0.9), random_values(d * 6 * h, seed + 3, 0.5),
          random_values(d * s.batch * h, seed + 4, 0.8)};
}

struct Parameters {
  bool alpha, beta;
};
inline Parameters parameters_of(const std::string& name) {
  const bool both = name == "Affine" || name == "ScaledTanh" || name == "HardSigmoid";
  return {both || name == "LeakyRelu" || name == "ThresholdedRelu" || name == "Elu", both};
}

inline Attributes attributes_of(const GruCase& s) {
  Attributes a{{"hidden_size", s.hidden}, {"direction", s.direction}, {"linear_before_reset", int64_t{s.linear}}};
  if (s.clip > 0) a["clip"] = s.clip;
  if (s.activations.empty()) return a;
  a["activations"] = s.activations;
  Values alpha, beta;
  for (size_t i = 0; i < s.activations.size(); ++i) {
    if (parameters_of(s.activations[i]).alpha) alpha.push_back(s.alpha[i]);
    if (parameters_of(s.activations[i]).beta) beta.push_back(s.beta[i]);
  }
  if (!alpha.empty()) a["activation_alpha"] = alpha;
  if (!beta.empty()) a["activation_beta"] = beta;
  return a;
}

inline std::vector<Tensor> inputs_of(const GruCase& s, const Weights& w, DType t) {
  const int64_t d = s.directions(), h = s.hidden;
  std::vector<Tensor> in(6);
  in[0] = Tensor::of(t, {s.steps, s.batch, s.inputs}, w.x);
  in[1] = Tensor::of(t, {d, 3 * h, s.inputs}, w.w);
  in[2] = Tensor::of(t, {d, 3 * h, h}, w.r);
  if (s.bias) in[3] = Tensor::of(t, {d, 6 * h}, w.b);
  if (!s.lens.empty()) in[4] = Tensor::of(DType::i32, {s.batch}, s.lens);
  if (s.first_state) in[5] = Tensor::of(t, {d, s.batch, h}, w.h0);
  return in;
}

inline std::vector<Tensor> must(Result<std::vector<Tensor>> result) {
  if (!result) throw std::runtime_error(result.error().what());
  return std::move(result.value());
}

struct Upstream {
  Values all, last;  // empty: absent
};

// GRUGrad's inputs: those of the forward pass, its results, and the upstream gradients.
inline std::vector<Tensor> grad_inputs(const GruCase& s, const std::vector<Tensor>& in, const std::vector<Tensor>& out,
                                       const Upstream& up, DType t) {
  std::vector<Tensor> all = in;
  all.push_back(out[0]);
  all.push_back(out[2]);
  all.resize(10);
  if (!up.all.empty()) all[8] = Tensor::of(t, {s.steps, s.directions(), s.batch, s.hidden}, up.all);
  if (!up.last.empty()) all[9] = Tensor::of(t, {s.directions(), s.batch, s.hidden}, up.last);
  return all;
}

inline void expect_near(const Values& got, const Values& want, double tolerance, const char* what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  for (size_t i = 0; i < got.size(); ++i)
    ASSERT_LE(std::abs(got[i] - want[i]), tolerance * (1 + std::abs(want[i])))
        << what << "[" << i << "] is " << got[i] << ", want " << want[i];
}

inline std::string describe(const GruCase& s, const Upstream& up) {
  std::string text = s.direction + (s.linear ? " linear" : "") + (s.bias ? " bias" : "") +
                     (s.first_state ? " h0" : "") + (s.lens.empty() ? "" : " lens") + (s.clip > 0 ? " clip" : "") +
                     (up.all.empty() ? "" : " dHAll") + (up.last.empty() ? "" : " dHFinal");
  for (const std::string& name : s.activations) text += " " + name;
  return text;
}

struct Trained {
  GruCase setup;
  Attributes attributes;
  std::vector<Tensor> in, out, grad_in;
};
inline Trained trained(Runtime& runtime, const GruCase& s, DType t, uint64_t seed) {
  Trained call{s, attributes_of(s), inputs_of(s, random_weights(s, seed), t), {}, {}};
  call.out = must(runtime.run("GRUTraining", call.in, call.attributes));
  const int64_t states = s.directions() * s.batch * s.hidden;
  call.grad_in = grad_inputs(s, call.in, call.out,
                             {random_values(s.steps * states, seed + 7, 1), random_values(states, seed + 8, 1)}, t);
  return call;
}

}  // namespace gradloom::testing_gru
