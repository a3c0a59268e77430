#include "cli/bench/bench_gru.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>

#include "cli/bench/bench_measure.h"
#include "cli/bench/bench_peak.h"
#include "cli/command.h"
#include "cli/text.h"

namespace gradloom::cli {
namespace {

using Rows = std::vector<float>;

const float* data_of(const Tensor& t) { return static_cast<const float*>(t.data()); }

// Reference gradients by plain row-wise products: float32, each element's products accumulated in order.
struct PlainGradients {
  Rows x, w, r, b, h0;

  PlainGradients(const GruCase& c, const std::vector<Tensor>& in) {
    const int64_t s = c.steps, n = c.batch, i = c.inputs, h = c.hidden, rows = s * n;
    const float *X = data_of(in[0]), *W = data_of(in[1]), *R = data_of(in[2]), *B = data_of(in[3]),
                *H0 = data_of(in[5]);
    const float *all = data_of(in[6]), *gates = data_of(in[7]), *up = data_of(in[8]);
    Rows before(rows * h);
    std::copy(H0, H0 + n * h, before.begin());
    std::copy(all, all + (rows - n) * h, before.begin() + n * h);
    const Rows candidate = transposed(R + 2 * h * h, h, h);
    Rows input(rows * 3 * h), state(rows * 3 * h);  // gate gradients: the operands of the products with W and with R
    Rows g(n * h), product(h), reset(h);
    for (int64_t t = s - 1; t >= 0; --t)
      for (int64_t k = 0; k < n; ++k) {
        const int64_t row = t * n + k;
        const float *z = gates + row * 3 * h, *gate = z + h, *cand = z + 2 * h, *prev = &before[row * h];
        multiply_add_row(prev, candidate.data(), reset.data(), h, h);
        float *in_row = &input[row * 3 * h], *state_row = &state[row * 3 * h];
        for (int64_t j = 0; j < h; ++j) {
          const float arriving = g[k * h + j] + up[row * h + j];
          const float dz = arriving * (prev[j] - cand[j]) * (z[j] * (1 - z[j])),
                      dc = arriving * (1 - z[j]) * (1 - cand[j] * cand[j]);
          const float dr = dc * (reset[j] + B[5 * h + j]) * (gate[j] * (1 - gate[j]));
          in_row[j] = state_row[j] = dz, in_row[h + j] = state_row[h + j] = dr, in_row[2 * h + j] = dc,
          state_row[2 * h + j] = dc * gate[j];
          g[k * h + j] = arriving * z[j];
        }
        multiply_add_row(state_row, R, product.data(), 3 * h, h);
        for (int64_t j = 0; j < h; ++j) g[k * h + j] += product[j];
      }
    h0 = std::move(g);
    x.resize(rows * i);
    for (int64_t row = 0; row < rows; ++row) multiply_add_row(&input[row * 3 * h], W, &x[row * i], 3 * h, i);
    w = products(transposed(input.data(), rows, 3 * h), X, 3 * h, rows, i);
    r = products(transposed(state.data(), rows, 3 * h), before.data(), 3 * h, rows, h);
    b.assign(6 * h, 0);
    for (int64_t row = 0; row < rows; ++row)
      for (int64_t j = 0; j < 3 * h; ++j) b[j] += input[row * 3 * h + j], b[3 * h + j] += state[row * 3 * h + j];
  }

 private:
  static Rows transposed(const float* from, int64_t rows, int64_t columns) {
    Rows to(rows * columns);
    for (int64_t row = 0; row < rows; ++row)
      for (int64_t column = 0; column < columns; ++column) to[column * rows + row] = from[row * columns + column];
    return to;
  }
  static Rows products(const Rows& factors, const float* columns, int64_t m, int64_t k, int64_t n) {
    Rows out(m * n);
    for (int64_t row = 0; row < m; ++row) multiply_add_row(&factors[row * k], columns, &out[row * n], k, n);
    return out;
  }
};

// Sums over steps and batches differ by the rounding of a few reordered additions and by its propagation to later
// steps.
std::string difference(const char* name, const Tensor& got, const Rows& want) {
  constexpr float tolerance = 1e-4f;
  float largest = 0;
  for (const float v : want) largest = std::max(largest, std::abs(v));
  for (size_t k = 0; k < want.size(); ++k) {
    const float have = data_of(got)[k];
    if (!(std::abs(have - want[k]) <= tolerance * largest))
      return fmt::format("{}[{}] is {}, expected {} within {}", name, k, have, want[k], tolerance * largest);
  }
  return {};
}

struct GruTimes {
  PeakTimes call;
  double cold_ms = 0;
  std::string wrong;
};

GruTimes measure(const GruCase& c, Runtime& runtime, const RunOptions& options, ProbeTeam& team, double seconds) {
  GruOperands operands(c, runtime);
  GruTimes times;
  const double begin = elapsed_ms();
  const Executable handle = runtime.compile("GRUGrad", operands.inputs, operands.attributes, options).value();
  times.cold_ms = elapsed_ms() - begin;
  times.call = measure_beside_peak([&] { handle(operands.inputs, operands.outputs).value(); }, team, seconds);
  times.wrong = gru_difference(c, operands.inputs, operands.outputs);
  return times;
}

}  // namespace

GruOperands::GruOperands(const GruCase& c, Runtime& runtime) {
  const int64_t s = c.steps, n = c.batch, i = c.inputs, h = c.hidden;
  BenchCase values;
  values.name = c.name;
  for (const Dims& dims :
       {Dims{s, n, i}, Dims{1, 3 * h, i}, Dims{1, 3 * h, h}, Dims{1, 6 * h}, Dims{1, n, h}, Dims{s, 1, n, h}})
    values.inputs.push_back({BenchInput::values, dims});
  const std::vector<Tensor> made = bench_inputs(values);
  for (const int weight : {1, 2, 3}) {
    auto* data = static_cast<float*>(made[weight].data());
    for (int64_t k = 0; k < made[weight].elements(); ++k) data[k] /= std::sqrt(static_cast<float>(h));
  }
  inputs = {made[0], made[1], made[2], made[3], Tensor(), made[4]};
  std::vector<Tensor> there = inputs;
  for (Tensor& t : there)
    if (t.present()) t = runtime.to_device(t).value();
  const std::vector<Tensor> saved = runtime.run("GRUTraining", there, attributes).value();
  inputs.insert(inputs.end(), {runtime.to_host(saved[0]).value(), runtime.to_host(saved[2]).value(), made[5]});
  for (const int like : {0, 1, 2, 3, 5}) {
    outputs.push_back(Tensor::empty(DType::f32, inputs[like].dims()));
    std::memset(outputs.back().data(), 0xff, outputs.back().elements() * 4);
  }
}

std::string gru_difference(const GruCase& c, const std::vector<Tensor>& inputs, const std::vector<Tensor>& outputs) {
  const PlainGradients want(c, inputs);
  const char* names[] = {"dX", "dW", "dR", "dB", "dH0"};
  const Rows* wanted[] = {&want.x, &want.w, &want.r, &want.b, &want.h0};
  for (int o = 0; o < 5; ++o)
    if (std::string wrong = difference(names[o], outputs[o], *wanted[o]); !wrong.empty()) return wrong;
  return {};
}

std::vector<const GruCase*> chosen_gru_cases(const std::vector<std::string>& names) {
  return chosen_of(gru_cases(), "gru_grad", names);
}

int bench_gru(const std::vector<const GruCase*>& cases, Runtime& runtime, const RunOptions& options, double seconds,
              bool json) {
  ProbeTeam team(runtime.threads());
  Table table({"case", ">S", ">N", ">I", ">H", ">threads", ">median ms", ">min ms", ">roof ms", ">x roof", ">x at best",
               ">GFLOP/s", ">peak", ">cold ms", ">n", "verified"});
  int status = 0;
  for (const GruCase* c : cases) {
    const GruTimes t = measure(*c, runtime, options, team, seconds);
    const double roof_ms = c->flops() / t.call.peak_gflops * 1e-6, gflops = c->flops() / t.call.median_ms * 1e-6;
    const double best_roof_ms = c->flops() / t.call.best_peak_gflops * 1e-6;
    if (!t.wrong.empty()) {
      status = exit_failure;
      to_stderr("{}: {}\n", c->name, t.wrong);
    }
    if (json) {
      const nlohmann::ordered_json line{{"case", c->name},
                                        {"threads", runtime.threads()},
                                        {"median_ms", t.call.median_ms},
                                        {"min_ms", t.call.min_ms},
                                        {"roof_ms", roof_ms},
                                        {"best_roof_ms", best_roof_ms},
                                        {"gflops", gflops},
                                        {"peak_gflops", t.call.peak_gflops},
                                        {"cold_ms", t.cold_ms},
                                        {"n", t.call.samples},
                                        {"verified", t.wrong.empty()}};
      fmt::print("{}\n", line.dump());
      std::fflush(stdout);
    } else {
      table.row({c->name, std::to_string(c->steps), std::to_string(c->batch), std::to_string(c->inputs),
                 std::to_string(c->hidden), std::to_string(runtime.threads()), milliseconds_text(t.call.median_ms),
                 milliseconds_text(t.call.min_ms), milliseconds_text(roof_ms),
                 fmt::format("{:.2f}", t.call.median_ms / roof_ms), fmt::format("{:.2f}", t.call.min_ms / best_roof_ms),
                 fmt::format("{:.1f}", gflops), fmt::format("{:.1f}", t.call.peak_gflops),
                 fmt::format("{:.0f}", t.cold_ms), std::to_string(t.call.samples), t.wrong.empty() ? "yes" : "WRONG"});
    }
  }
  if (!json) {
    fmt::print("{}, {}\n\n{}", cpu_and_threads(runtime.threads()), runtime.target_name(), table.text());
    fmt::print(
        "\nroof: the products of dX, dW, dR and of the recurrence at the multiply-add peak measured between the calls; "
        "at best: the fastest call beside the "
        "best peak. cold: check, build and compile.\n");
  }
  return status;
}

}  // namespace gradloom::cli
