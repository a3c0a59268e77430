#include "cli/bench/bench_gemm.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>

#include "cli/bench/bench_cases.h"
#include "cli/bench/bench_measure.h"
#include "cli/bench/bench_peak.h"
#include "cli/command.h"
#include "cli/text.h"
#include "gradloom/matmul.h"

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
  std::vector<GemmCase> cases{
      {"gemm_512", 512, 512, 512}, {"gemm_1024", 1024, 1024, 1024}, {"gemm_2048", 2048, 2048, 2048}};
  add_gru(cases, "a", 50, 32, 128, 256);
  add_gru(cases, "b", 128, 64, 512, 512);
  add_gru(cases, "c", 20, 1, 64, 128);
  return cases;
}

ir::Kernel scheduled_kernel(const GemmCase& c, const ir::Target& target) {
  ir::KernelBuilder builder(c.name);
  const ir::Buffer a = builder.input(
      "a", DType::f32, c.a_transposed ? std::vector<Expr>{c.steps, c.k, c.m} : std::vector<Expr>{c.steps, c.m, c.k});
  const ir::Buffer b =
      builder.input("b", DType::f32, c.b_transposed ? std::vector<Expr>{c.n, c.k} : std::vector<Expr>{c.k, c.n});
  const ir::Buffer out = builder.output("c", DType::f32, {c.steps, c.m, c.n}, 64);
  ir::Loop rows = 0;
  const ir::Loop steps = builder.loop("t", 0, c.steps, [&](Expr t) {
    Matmul product{.prefix = "p", .m = c.m, .n = c.n, .k = c.k};
    product.a = [&](Expr m, Expr k) { return c.a_transposed ? load(a, {t, k, m}) : load(a, {t, m, k}); };
    product.b = [&](Expr k, Expr n) { return c.b_transposed ? load(b, {n, k}) : load(b, {k, n}); };
    product.store = [&](Expr m, Expr n, Expr sum) { builder.store(out, {t, m, n}, sum); };
    rows = author_matmul(builder, product);
  });
  ir::Schedule schedule(builder.build());
  schedule_matmul(schedule, rows, target, {.pack_b_before = c.steps > 1 ? steps : 0});
  return schedule.kernel();
}

// The first element that differs from its products accumulated in order, one rounding per step.
std::string difference(const GemmCase& c, const Tensor& a, const Tensor& b, const Tensor& out) {
  const auto* x = static_cast<const float*>(a.data());
  const auto* y = static_cast<const float*>(b.data());
  const auto* got = static_cast<const float*>(out.data());
  std::vector<float> columns(static_cast<size_t>(c.k * c.n)), row(static_cast<size_t>(c.n)),
      factors(static_cast<size_t>(c.k));
  for (int64_t k = 0; k < c.k; ++k)
    for (int64_t n = 0; n < c.n; ++n) columns[k * c.n + n] = c.b_transposed ? y[n * c.k + k] : y[k * c.n + n];
  for (int64_t t = 0; t < c.steps; ++t)
    for (int64_t m = 0; m < c.m; ++m) {
      for (int64_t k = 0; k < c.k; ++k) factors[k] = x[t * c.m * c.k + (c.a_transposed ? k * c.m + m : m * c.k + k)];
      multiply_add_row(factors.data(), columns.data(), row.data(), c.k, c.n);
      const float* have = got + (t * c.m + m) * c.n;
      if (std::memcmp(have, row.data(), row.size() * sizeof(float)) == 0) continue;
      for (int64_t n = 0; n < c.n; ++n)
        if (std::memcmp(have + n, &row[n], sizeof(float)) != 0)
          return fmt::format("c[{}, {}, {}] is {}, expected {}", t, m, n, have[n], row[n]);
    }
  return {};
}

struct GemmTimes {
  PeakTimes call;
  double read_gbs = 0;
  std::string wrong;
};

// Alternates with the multiply-add peak; for a product of few rows also with reading B.
GemmTimes measure(const GemmCase& c, Runtime& runtime, ProbeTeam& team, double seconds) {
  BenchCase values;
  values.inputs = {{BenchInput::values, c.a_transposed ? Dims{c.steps, c.k, c.m} : Dims{c.steps, c.m, c.k}},
                   {BenchInput::values, c.b_transposed ? Dims{c.n, c.k} : Dims{c.k, c.n}}};
  std::vector<Tensor> buffers = bench_inputs(values);
  buffers.push_back(Tensor::empty(DType::f32, {c.steps, c.m, c.n}));
  std::memset(buffers[2].data(), 0xff,
              static_cast<size_t>(buffers[2].elements()) * 4);  // NaN: unwritten elements are detected
  const KernelExecutable kernel = runtime.compile(scheduled_kernel(c, runtime.target())).value();
  const auto call = [&] { kernel(buffers).value(); };
  const std::vector<Span> read{{buffers[1].data(), c.k * c.n * 4}};
  std::vector<std::vector<double>> read_ms(c.m <= 8 ? read_loops().size() : 0);
  const auto read_b = [&] {
    for (size_t i = 0; i < read_ms.size(); ++i) {
      constexpr int rounds = 20;
      team.read(read_loops()[i], read);
      double ms = 0;
      for (int r = 0; r < rounds; ++r) ms += team.read(read_loops()[i], read);
      read_ms[i].push_back(ms / rounds);
    }
  };
  GemmTimes times{.call = measure_beside_peak(call, team, seconds, read_b)};
  for (const std::vector<double>& ms : read_ms)
    times.read_gbs = std::max(times.read_gbs, static_cast<double>(c.k * c.n * 4) / median(ms) * 1e-6);
  times.wrong = difference(c, buffers[0], buffers[1], buffers[2]);
  return times;
}

}  // namespace

const std::vector<GemmCase>& gemm_cases() {
  static const std::vector<GemmCase> cases = make_cases();
  return cases;
}

std::vector<const GemmCase*> chosen_gemm_cases(const std::vector<std::string>& names) {
  return chosen_of(gemm_cases(), "gemm", names);
}

int bench_gemm(const std::vector<const GemmCase*>& cases, Runtime& runtime, double seconds, bool json) {
  ProbeTeam team(runtime.threads());
  Table table({"case", ">m", ">n", ">k", ">threads", ">median ms", ">min ms", ">GFLOP/s", ">peak", ">% of peak",
               ">% at best", ">B GB/s", ">% of read", ">n", "verified"});
  int status = 0;
  for (const GemmCase* c : cases) {
    const GemmTimes t = measure(*c, runtime, team, seconds);
    const double gflops = c->flops() / t.call.median_ms * 1e-6, share = gflops / t.call.peak_gflops;
    const double best_share = c->flops() / t.call.min_ms * 1e-6 / t.call.best_peak_gflops;
    const double gbs = static_cast<double>(c->steps * c->k * c->n * 4) / t.call.median_ms * 1e-6;
    if (!t.wrong.empty()) {
      status = exit_failure;
      to_stderr("{}: {}\n", c->name, t.wrong);
    }
    if (json) {
      nlohmann::ordered_json line{{"case", c->name},
                                  {"m", c->m},
                                  {"n", c->n},
                                  {"k", c->k},
                                  {"threads", runtime.threads()},
                                  {"median_ms", t.call.median_ms},
                                  {"min_ms", t.call.min_ms},
                                  {"gflops", gflops},
                                  {"peak_gflops", t.call.peak_gflops},
                                  {"share", share},
                                  {"best_share", best_share}};
      if (t.read_gbs > 0) line["b_gbs"] = gbs, line["read_gbs"] = t.read_gbs;
      line["n"] = t.call.samples, line["verified"] = t.wrong.empty();
      fmt::print("{}\n", line.dump());
      std::fflush(stdout);
    } else {
      table.row({c->name, std::to_string(c->m), std::to_string(c->n), std::to_string(c->k),
                 std::to_string(runtime.threads()), milliseconds_text(t.call.median_ms),
                 milliseconds_text(t.call.min_ms), fmt::format("{:.1f}", gflops),
                 fmt::format("{:.1f}", t.call.peak_gflops), fmt::format("{:.0f}", 100 * share),
                 fmt::format("{:.0f}", 100 * best_share), t.read_gbs > 0 ? fmt::format("{:.1f}", gbs) : "",
                 t.read_gbs > 0 ? fmt::format("{:.0f}", 100 * gbs / t.read_gbs) : "", std::to_string(t.call.samples),
                 t.wrong.empty() ? "yes" : "WRONG"});
    }
  }
  if (!json) {
    fmt::print("{}, {}\n\n{}", cpu_and_threads(runtime.threads()), runtime.target_name(), table.text());
    fmt::print(
        "\npeak: independent multiply-adds in registers, measured between the calls; at best: the fastest call beside "
        "the best peak. Steps count all their "
        "products; B is packed once for them.\n");
  }
  return status;
}

}  // namespace gradloom::cli
