#include "cli/bench_gemm.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>

#include "cli/bench_cases.h"
#include "cli/bench_measure.h"
#include "cli/command.h"
#include "cli/text.h"
#include "ops/matmul.h"

namespace gradloom::cli {
namespace {

using ir::Expr;

// The products of GRU over S steps, N sequences, I inputs, H hidden.
void add_gru(std::vector<GemmCase>& cases, const std::string& name, int64_t s, int64_t n, int64_t i, int64_t h) {
  const std::string prefix = "gemm_" + name + "_";
  cases.push_back({prefix + "x", s * n, 3 * h, i, false, true});     // forward: X W^T
  cases.push_back({prefix + "hstep", n, 3 * h, h, false, true, s});  // forward, each step: h R^T
  cases.push_back({prefix + "step", n, h, 3 * h, false, false, s});  // backward, each step: a R
  cases.push_back({prefix + "dX", s * n, i, 3 * h, false, false});
  cases.push_back({prefix + "dW", 3 * h, i, s * n, true, false});
  cases.push_back({prefix + "dR", 3 * h, h, s * n, true, false});
}

std::vector<GemmCase> make_cases() {
  std::vector<GemmCase> cases{{"gemm_512", 512, 512, 512}, {"gemm_1024", 1024, 1024, 1024}, {"gemm_2048", 2048, 2048, 2048}};
  add_gru(cases, "a", 50, 32, 128, 256);
  add_gru(cases, "b", 128, 64, 512, 512);
  add_gru(cases, "c", 20, 1, 64, 128);
  return cases;
}

ir::Kernel scheduled_kernel(const GemmCase& c, const ir::Target& target) {
  ir::KernelBuilder builder(c.name);
  const ir::Buffer a = builder.input("a", DType::f32, c.a_transposed ? std::vector<Expr>{c.steps, c.k, c.m} : std::vector<Expr>{c.steps, c.m, c.k});
  const ir::Buffer b = builder.input("b", DType::f32, c.b_transposed ? std::vector<Expr>{c.n, c.k} : std::vector<Expr>{c.k, c.n});
  const ir::Buffer out = builder.output("c", DType::f32, {c.steps, c.m, c.n}, 64);
  builder.loop("t", 0, c.steps, [&](Expr t) {
    Matmul product{.prefix = "p", .m = c.m, .n = c.n, .k = c.k};
    product.a = [&](Expr m, Expr k) { return c.a_transposed ? load(a, {t, k, m}) : load(a, {t, m, k}); };
    product.b = [&](Expr k, Expr n) { return c.b_transposed ? load(b, {n, k}) : load(b, {k, n}); };
    product.store = [&](Expr m, Expr n, Expr sum) { builder.store(out, {t, m, n}, sum); };
    author_matmul(builder, product);
  });
  ir::Schedule schedule(builder.build());
  MatmulHints hints;
  if (c.steps > 1) hints.pack_b_before = schedule.loop("t");
  schedule_matmul(schedule, "p", target, hints);
  return schedule.kernel();
}

// The first element that is not its products added in order, each with one rounding.
std::string difference(const GemmCase& c, const Tensor& a, const Tensor& b, const Tensor& out) {
  const auto* x = static_cast<const float*>(a.data());
  const auto* y = static_cast<const float*>(b.data());
  const auto* got = static_cast<const float*>(out.data());
  std::vector<float> columns(static_cast<size_t>(c.k * c.n)), row(static_cast<size_t>(c.n)), factors(static_cast<size_t>(c.k));
  for (int64_t k = 0; k < c.k; ++k)
    for (int64_t n = 0; n < c.n; ++n) columns[k * c.n + n] = c.b_transposed ? y[n * c.k + k] : y[k * c.n + n];
  for (int64_t t = 0; t < c.steps; ++t)
    for (int64_t m = 0; m < c.m; ++m) {
      for (int64_t k = 0; k < c.k; ++k) factors[k] = x[t * c.m * c.k + (c.a_transposed ? k * c.m + m : m * c.k + k)];
      multiply_add_row(factors.data(), columns.data(), row.data(), c.k, c.n);
      const float* have = got + (t * c.m + m) * c.n;
      if (std::memcmp(have, row.data(), row.size() * sizeof(float)) == 0) continue;
      for (int64_t n = 0; n < c.n; ++n)
        if (std::memcmp(have + n, &row[n], sizeof(float)) != 0) return fmt::format("c[{}, {}, {}] is {}, expected {}", t, m, n, have[n], row[n]);
    }
  return {};
}

struct GemmTimes {
  double median_ms = 0, min_ms = 0, peak_gflops = 0, read_gbs = 0;
  int samples = 0;
  std::string wrong;
};

// A sample of the product, a sample of the peak, ...; for a product of few rows a sample of reading B as well.
GemmTimes measure(const GemmCase& c, Runtime& runtime, ProbeTeam& team, double seconds) {
  constexpr double shortest_sample_ms = 0.5;
  constexpr int fewest_samples = 7, most_samples = 2000;
  BenchCase values;
  values.inputs = {{BenchInput::values, c.a_transposed ? Dims{c.steps, c.k, c.m} : Dims{c.steps, c.m, c.k}},
                   {BenchInput::values, c.b_transposed ? Dims{c.n, c.k} : Dims{c.k, c.n}}};
  std::vector<Tensor> buffers = bench_inputs(values);
  buffers.push_back(Tensor::empty(DType::f32, {c.steps, c.m, c.n}));
  std::memset(buffers[2].data(), 0xff, static_cast<size_t>(buffers[2].elements()) * 4);  // NaN: what is not written shows
  const KernelExecutable kernel = runtime.compile(scheduled_kernel(c, runtime.target())).value();
  const auto call = [&] { kernel(buffers).value(); };
  call();
  double begin = elapsed_ms();
  call();
  const int batch = std::max(1, static_cast<int>(shortest_sample_ms / std::max(1e-4, elapsed_ms() - begin)));
  const MultiplyAddLoop peak = multiply_add_loop();
  const int64_t peak_rounds = 200000;
  const std::vector<Span> read{{buffers[1].data(), c.k * c.n * 4}};
  std::vector<double> kernel_ms, peak_ms;
  std::vector<std::vector<double>> read_ms(read_loops().size());
  const double deadline = elapsed_ms() + seconds * 1000;
  while (static_cast<int>(kernel_ms.size()) < most_samples && (static_cast<int>(kernel_ms.size()) < fewest_samples || elapsed_ms() < deadline)) {
    peak_ms.push_back(team.multiply_add(peak, peak_rounds));
    if (c.m <= 8)
      for (size_t i = 0; i < read_ms.size(); ++i) {
        team.read(read_loops()[i], read);
        double ms = 0;
        for (int r = 0; r < 20; ++r) ms += team.read(read_loops()[i], read);
        read_ms[i].push_back(ms / 20);
      }
    call();  // not timed: brings back what the probes displaced
    begin = elapsed_ms();
    for (int b = 0; b < batch; ++b) call();
    kernel_ms.push_back((elapsed_ms() - begin) / batch);
  }
  GemmTimes times{median(kernel_ms), *std::min_element(kernel_ms.begin(), kernel_ms.end())};
  times.peak_gflops = runtime.threads() * static_cast<double>(peak.flops) * static_cast<double>(peak_rounds) / median(peak_ms) * 1e-6;
  if (c.m <= 8)
    for (const std::vector<double>& ms : read_ms) times.read_gbs = std::max(times.read_gbs, static_cast<double>(c.k * c.n * 4) / median(ms) * 1e-6);
  times.samples = static_cast<int>(kernel_ms.size());
  times.wrong = difference(c, buffers[0], buffers[1], buffers[2]);
  return times;
}

}  // namespace

const std::vector<GemmCase>& gemm_cases() {
  static const std::vector<GemmCase> cases = make_cases();
  return cases;
}

std::vector<const GemmCase*> chosen_gemm_cases(const std::vector<std::string>& names) {
  std::vector<const GemmCase*> chosen;
  for (const std::string& name : names) {
    const size_t before = chosen.size();
    for (const GemmCase& c : gemm_cases())
      if (name == "gemm" || name == c.name) chosen.push_back(&c);
    if (chosen.size() == before) return {};
  }
  return chosen;
}

int bench_gemm(const std::vector<const GemmCase*>& cases, Runtime& runtime, double seconds, bool json) {
  ProbeTeam team(runtime.threads());
  Table table({"case", ">m", ">n", ">k", ">threads", ">median ms", ">GFLOP/s", ">peak", ">% of peak", ">B GB/s", ">% of read", ">n", "verified"});
  int status = 0;
  for (const GemmCase* c : cases) {
    const GemmTimes t = measure(*c, runtime, team, seconds);
    const double gflops = c->flops() / t.median_ms * 1e-6, share = gflops / t.peak_gflops;
    const double gbs = static_cast<double>(c->steps * c->k * c->n * 4) / t.median_ms * 1e-6;
    if (!t.wrong.empty()) {
      status = exit_failure;
      fmt::print(stderr, "{}: {}\n", c->name, t.wrong);
    }
    if (json) {
      nlohmann::ordered_json line{{"case", c->name},
                                  {"m", c->m},
                                  {"n", c->n},
                                  {"k", c->k},
                                  {"threads", runtime.threads()},
                                  {"median_ms", t.median_ms},
                                  {"min_ms", t.min_ms},
                                  {"gflops", gflops},
                                  {"peak_gflops", t.peak_gflops},
                                  {"share", share}};
      if (t.read_gbs > 0) line["b_gbs"] = gbs, line["read_gbs"] = t.read_gbs;
      line["n"] = t.samples, line["verified"] = t.wrong.empty();
      fmt::print("{}\n", line.dump());
      std::fflush(stdout);
    } else {
      table.row({c->name, std::to_string(c->m), std::to_string(c->n), std::to_string(c->k), std::to_string(runtime.threads()), milliseconds_text(t.median_ms),
                 fmt::format("{:.1f}", gflops), fmt::format("{:.1f}", t.peak_gflops), fmt::format("{:.0f}", 100 * share),
                 t.read_gbs > 0 ? fmt::format("{:.1f}", gbs) : "", t.read_gbs > 0 ? fmt::format("{:.0f}", 100 * gbs / t.read_gbs) : "",
                 std::to_string(t.samples), t.wrong.empty() ? "yes" : "WRONG"});
    }
  }
  if (!json) {
    fmt::print("{}, {} thread{}, {}\n\n{}", cpu_name(), runtime.threads(), runtime.threads() == 1 ? "" : "s", runtime.target_name(), table.text());
    fmt::print("\npeak: independent multiply-adds in registers, measured between the calls. Steps count all their products; B is packed once for them.\n");
  }
  return status;
}

}  // namespace gradloom::cli
