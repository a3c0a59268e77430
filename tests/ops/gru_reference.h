#pragma once
// A gated recurrent unit in plain double precision, written from ONNX's definition and independent of the library: the
// tests' reference, and the function of their finite differences.
#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <vector>

namespace gradloom::testing_gru {

using Values = std::vector<double>;

struct GruCase {
  int64_t steps = 3, batch = 3, inputs = 2, hidden = 2;
  std::string direction = "forward";
  bool linear = false;
  bool bias = true, first_state = true;
  std::vector<int32_t> lens;             // empty: none given
  double clip = 0;                       // 0: none
  std::vector<std::string> activations;  // empty: Sigmoid and Tanh
  Values alpha, beta;                    // one per function here, whether it has the parameter or not

  int64_t directions() const { return direction == "bidirectional" ? 2 : 1; }
};

inline double activate(const std::string& name, double x, double alpha, double beta) {
  if (name == "Affine") return alpha * x + beta;
  if (name == "Relu") return std::max(x, 0.0);
  if (name == "LeakyRelu") return x < 0 ? alpha * x : x;
  if (name == "ThresholdedRelu") return x > alpha ? x : 0;
  if (name == "Tanh") return std::tanh(x);
  if (name == "ScaledTanh") return alpha * std::tanh(beta * x);
  if (name == "Sigmoid") return 1 / (1 + std::exp(-x));
  if (name == "HardSigmoid") return std::min(1.0, std::max(0.0, alpha * x + beta));
  if (name == "Elu") return x < 0 ? alpha * (std::exp(x) - 1) : x;
  if (name == "Softsign") return x / (1 + std::abs(x));
  return std::log1p(std::exp(x));  // Softplus
}

struct Weights {
  Values x, w, r, b, h0;
};

struct States {
  Values all, last, gates;
};

inline States forward(const GruCase& s, const Weights& in) {
  const int64_t dirs = s.directions(), S = s.steps, N = s.batch, I = s.inputs, H = s.hidden;
  States out{Values(S * dirs * N * H), Values(dirs * N * H), Values(S * dirs * N * 3 * H)};
  for (int64_t d = 0; d < dirs; ++d) {
    const bool reverse = d == 1 || s.direction == "reverse";
    const std::string f = s.activations.empty() ? "Sigmoid" : s.activations[2 * d],
                      g = s.activations.empty() ? "Tanh" : s.activations[2 * d + 1];
    const auto parameter = [&](const Values& v, int64_t i) { return v.empty() ? 0.0 : v[2 * d + i]; };
    const auto clipped = [&](double v) { return s.clip > 0 ? std::min(s.clip, std::max(-s.clip, v)) : v; };
    const auto bias = [&](int64_t part, int64_t j) { return s.bias ? in.b[(d * 6 + part) * H + j] : 0.0; };
    for (int64_t n = 0; n < N; ++n) {
      Values h(H);
      for (int64_t j = 0; j < H; ++j) h[j] = s.first_state ? in.h0[(d * N + n) * H + j] : 0;
      const int64_t len = s.lens.empty() ? S : s.lens[n];
      for (int64_t step = 0; step < len; ++step) {
        const int64_t p = reverse ? len - 1 - step : step;
        const auto from_input = [&](int64_t gate, int64_t j) {
          double sum = 0;
          for (int64_t i = 0; i < I; ++i) sum += in.x[(p * N + n) * I + i] * in.w[((d * 3 + gate) * H + j) * I + i];
          return sum;
        };
        const auto from_state = [&](int64_t gate, int64_t j, const Values& state) {
          double sum = 0;
          for (int64_t k = 0; k < H; ++k) sum += state[k] * in.r[((d * 3 + gate) * H + j) * H + k];
          return sum;
        };
        Values z(H), r(H), rh(H), c(H), next(H);
        for (int64_t j = 0; j < H; ++j) {
          z[j] = activate(f, clipped(from_input(0, j) + from_state(0, j, h) + bias(0, j) + bias(3, j)),
                          parameter(s.alpha, 0), parameter(s.beta, 0));
          r[j] = activate(f, clipped(from_input(1, j) + from_state(1, j, h) + bias(1, j) + bias(4, j)),
                          parameter(s.alpha, 0), parameter(s.beta, 0));
          rh[j] = r[j] * h[j];
        }
        for (int64_t j = 0; j < H; ++j) {
          const double input = s.linear ? from_input(2, j) + bias(2, j) + r[j] * (from_state(2, j, h) + bias(5, j))
                                        : from_input(2, j) + bias(2, j) + from_state(2, j, rh) + bias(5, j);
          c[j] = activate(g, clipped(input), parameter(s.alpha, 1), parameter(s.beta, 1));
          next[j] = (1 - z[j]) * c[j] + z[j] * h[j];
          const int64_t place = (p * dirs + d) * N + n;
          out.all[place * H + j] = next[j];
          out.gates[(place * 3 + 0) * H + j] = z[j], out.gates[(place * 3 + 1) * H + j] = r[j],
                                          out.gates[(place * 3 + 2) * H + j] = c[j];
        }
        h = next;
      }
      for (int64_t j = 0; j < H; ++j) out.last[(d * N + n) * H + j] = h[j];
    }
  }
  return out;
}

}  // namespace gradloom::testing_gru
