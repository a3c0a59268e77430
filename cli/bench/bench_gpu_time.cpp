#include "cli/bench/bench_gpu_time.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "cli/bench/bench_cases.h"
#include "cli/bench/bench_gru.h"
#include "cli/bench/bench_measure.h"
#include "cli/command.h"
#include "cli/text.h"

namespace gradloom::cli {
namespace {

constexpr int rounds = 5;

struct GpuTime {
  std::string name, strategy;
  DType dtype = DType::f32;
  double us = 0, lowest_us = 0, cold_ms = 0;
  int64_t bytes = 0;
  std::string wrong;
};

// Microseconds per call, back to back: the host synchronises once per round.
GpuTime time_calls(
    Runtime& runtime, const std::string& op, const std::vector<Tensor>& host_inputs,
    const std::vector<Tensor>& host_outputs, const Attributes& attributes, const GpuTimeOptions& options,
    const std::function<std::string(const std::vector<Tensor>& outputs, const std::string& strategy)>& difference) {
  const OpSchema& schema = find_op(op)->schema();
  GpuTime time;
  std::vector<Tensor> inputs = host_inputs, outputs;
  for (size_t i = 0; i < inputs.size(); ++i)
    if (inputs[i].present() && !schema.inputs[i].shape_like) inputs[i] = runtime.to_device(inputs[i]).value();
  for (const Tensor& t : host_outputs) outputs.push_back(runtime.to_device(t).value());
  RunOptions run;
  run.determinism = options.determinism;
  const double begin = elapsed_ms();
  const Executable handle = runtime.compile(op, inputs, attributes, run).value();
  time.cold_ms = elapsed_ms() - begin;
  time.strategy = handle.report().strategy;
  const auto calls = [&](int64_t count) {
    const double start = elapsed_ms();
    for (int64_t i = 0; i < count; ++i) handle(inputs, outputs).value();
    runtime.synchronize().value();
    return (elapsed_ms() - start) * 1e3 / static_cast<double>(count);
  };
  const double first = std::min(calls(1), calls(3));
  const auto count = static_cast<int64_t>(std::clamp(options.seconds * 1e6 / rounds / first, 3.0, 20000.0));
  std::vector<double> us;
  for (int r = 0; r < rounds; ++r) us.push_back(calls(count));
  time.us = median(us), time.lowest_us = *std::min_element(us.begin(), us.end());
  std::vector<Tensor> back;
  for (const Tensor& t : outputs) back.push_back(runtime.to_host(t).value());
  time.wrong = difference(back, time.strategy);
  return time;
}

Tensor nans(DType dtype, const Dims& dims) {
  Tensor t = Tensor::empty(dtype, dims);
  std::memset(t.data(), 0xff, t.elements() * size_of(dtype));  // unwritten elements are detected
  return t;
}

GpuTime time_case(Runtime& runtime, const BenchCase& c, DType dtype, const GpuTimeOptions& options) {
  std::vector<Tensor> inputs = bench_inputs(c);
  for (Tensor& t : inputs) t = values_as(dtype, t);
  const Tensor output = nans(dtype, c.output);
  GpuTime time =
      time_calls(runtime, c.op, inputs, {output}, c.attributes, options,
                 [&](const std::vector<Tensor>& outputs, const std::string& strategy) {
                   std::vector<Tensor> values = inputs;
                   for (Tensor& t : values) t = values_as(DType::f32, t);
                   const Reference reference(
                       c, values, find_strategy(*find_op(c.op), strategy).level == Determinism::sequential, dtype);
                   return reference.difference(outputs[0]).value_or("");
                 });
  time.bytes = output.elements() * size_of(dtype);
  for (size_t i = 0; i < inputs.size(); ++i)
    if (c.inputs[i].kind != BenchInput::shape_like) time.bytes += inputs[i].elements() * size_of(inputs[i].dtype());
  return time;
}

// A case and a dtype's name.
using Timed = std::pair<std::string, std::string>;

// Times of another library: its name and microseconds.
std::map<Timed, std::pair<std::string, double>> times_beside(const std::string& file) {
  std::map<Timed, std::pair<std::string, double>> times;
  if (file.empty()) return times;
  std::ifstream in(file);
  if (!in) throw UsageError(fmt::format("bench: --beside is {}, which cannot be read", file));
  for (std::string line; std::getline(in, line);) {
    const auto parsed = nlohmann::json::parse(line, nullptr, false);
    if (!parsed.is_object() || !parsed.contains("case") || !parsed.contains("us")) continue;
    const double us = parsed["us"].get<double>();
    auto& best = times[{parsed["case"].get<std::string>(), parsed.value("dtype", "f32")}];
    if (best.second == 0 || us < best.second) best = {parsed.value("name", "other"), us};
  }
  return times;
}

}  // namespace

int bench_gpu_time(const GpuTimeOptions& options) {
  std::vector<const BenchCase*> cases;
  std::vector<const GruCase*> gru;
  for (const std::string& name : options.cases.empty() ? std::vector<std::string>{"all"} : options.cases) {
    const auto recurrent = chosen_gru_cases({name == "all" ? "gru_grad" : name});
    gru.insert(gru.end(), recurrent.begin(), recurrent.end());
    if (name != "all" && !recurrent.empty()) continue;
    const auto chosen = chosen_cases({name}, true);
    cases.insert(cases.end(), chosen.begin(), chosen.end());
  }
  const auto beside = times_beside(options.beside);
  RuntimeOptions runtime_options;
  runtime_options.target = TargetKind::cuda;
  Runtime runtime(runtime_options);
  std::vector<GpuTime> times;
  int status = 0;
  const auto one = [&](const std::string& name, DType dtype, const std::function<GpuTime()>& time) {
    try {
      times.push_back(time());
      times.back().name = name;
      times.back().dtype = dtype;
      if (times.back().wrong.empty()) return;
      to_stderr("{}: {}\n", name, times.back().wrong);
    } catch (const Error& error) {
      to_stderr("{}: {}\n", name, error.what());
    }
    status = exit_failure;
  };
  for (const DType dtype : options.dtypes)
    for (const BenchCase* c : cases) one(c->name, dtype, [&] { return time_case(runtime, *c, dtype, options); });
  const bool has_f32 = std::find(options.dtypes.begin(), options.dtypes.end(), DType::f32) != options.dtypes.end();
  if (!has_f32) gru.clear();
  for (const GruCase* c : gru) {
    one(c->name, DType::f32, [&] {
      const GruOperands call(*c, runtime);
      return time_calls(
          runtime, "GRUGrad", call.inputs, call.outputs, call.attributes, options,
          [&](const std::vector<Tensor>& got, const std::string&) { return gru_difference(*c, call.inputs, got); });
    });
  }
  Table table({"case", "dtype", "strategy", ">us", ">lowest us", ">GB/s", ">cold ms", ">other us", "other",
               ">times as fast", "verified"});
  if (options.markdown)
    fmt::print(
        "{}\n\n|case|dtype|strategy|us|lowest us|GB/s|cold ms|other us|other|times as "
        "fast|verified|\n|-|-|-|-:|-:|-:|-:|-:|-|-:|-|\n",
        runtime.target_name());
  for (const GpuTime& t : times) {
    const auto other = beside.find({t.name, to_string(t.dtype)});
    const bool has = other != beside.end();
    if (options.json) {
      nlohmann::ordered_json line{
          {"case", t.name},           {"dtype", to_string(t.dtype)}, {"strategy", t.strategy},     {"us", t.us},
          {"lowest_us", t.lowest_us}, {"cold_ms", t.cold_ms},        {"verified", t.wrong.empty()}};
      if (has) line["other"] = other->second.first, line["other_us"] = other->second.second;
      fmt::print("{}\n", line.dump());
      continue;
    }
    const std::vector<std::string> cells{
        t.name,
        to_string(t.dtype),
        t.strategy,
        fmt::format("{:.1f}", t.us),
        fmt::format("{:.1f}", t.lowest_us),
        t.bytes ? fmt::format("{:.0f}", static_cast<double>(t.bytes) / t.us * 1e-3) : "",
        fmt::format("{:.0f}", t.cold_ms),
        has ? fmt::format("{:.1f}", other->second.second) : "",
        has ? other->second.first : "",
        has ? fmt::format("{:.2f}", other->second.second / t.us) : "",
        t.wrong.empty() ? "yes" : "WRONG"};
    if (options.markdown)
      fmt::print("|{}|\n", fmt::join(cells, "|"));
    else
      table.row(cells);
  }
  if (!options.json && !options.markdown) fmt::print("{}\n\n{}", runtime.target_name(), table.text());
  return status;
}

}  // namespace gradloom::cli
