#include "cli/bench/bench_latency.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>

#include "cli/bench/bench_measure.h"
#include "cli/text.h"
#include "runtime/build.h"

namespace gradloom::cli {
namespace {

struct TinyCall {
  std::string op;
  std::vector<Tensor> inputs;
  Attributes attributes;
};

Tensor ints(std::vector<int64_t> values) {
  return Tensor::of<int64_t>(DType::i64, {static_cast<int64_t>(values.size())}, values);
}

std::vector<TinyCall> tiny_calls() {
  const Tensor four = Tensor::of<float>(DType::f32, {4}, {1, 2, 3, 4}),
               square = Tensor::of<float>(DType::f32, {2, 2}, {1, 2, 3, 4});
  return {{"BroadcastGrad", {square, ints({2})}, {}},
          {"BroadcastGradientArgs", {ints({2, 2}), ints({1, 2})}, {}},
          {"GatherElementsGrad", {four, ints({4}), ints({3, 0, 1, 1})}, {{"axis", int64_t{0}}}},
          {"GatherGrad", {ints({4}), ints({3, 0, 1, 1}), four}, {{"axis", int64_t{0}}}},
          {"SliceGrad", {Tensor::of<float>(DType::f32, {2}, {1, 2}), ints({4}), ints({1}), ints({3})}, {}}};
}

std::string microseconds_text(double us) { return fmt::format("{:.3g}", us); }

}  // namespace

ColdCompile cold_compile(Runtime& runtime, const BenchCase& c, const RunOptions& options, int repeats) {
  // Only descriptors matter: values are read of shape-like inputs only.
  std::vector<Tensor> inputs;
  for (const BenchInput& input : c.inputs) {
    if (input.kind == BenchInput::shape_like)
      inputs.push_back(ints(input.ints));
    else
      inputs.push_back(Tensor::empty(input.kind == BenchInput::values ? DType::f32 : DType::i64, input.dims));
  }
  std::vector<double> build, compile, total;
  std::string strategy;
  for (int i = 0; i < repeats; ++i) {
    runtime.clear_cache();
    const double begin = elapsed_ms();
    const Executable handle = runtime.compile(c.op, inputs, c.attributes, options).value();
    total.push_back(elapsed_ms() - begin);
    build.push_back(handle.report().build_ms);
    compile.push_back(handle.report().compile_ms);
    strategy = handle.report().strategy;
  }
  return {strategy, median(build), median(compile), median(total), *std::min_element(total.begin(), total.end())};
}

int bench_compile(Runtime& runtime, bool json) {
  constexpr int repeats = 15;
  const ColdCompile first = cold_compile(runtime, bench_cases().back(), {}, 1);
  Table table({"case", "strategy", ">build ms", ">compile ms", ">total ms", ">least ms"});
  for (const BenchCase& c : bench_cases()) {
    const ColdCompile cold = cold_compile(runtime, c, {}, repeats);
    if (json)
      fmt::print("{}\n", nlohmann::ordered_json{{"case", c.name},
                                                {"strategy", cold.strategy},
                                                {"build_ms", cold.build_ms},
                                                {"compile_ms", cold.compile_ms},
                                                {"total_ms", cold.total_ms},
                                                {"least_ms", cold.least_ms},
                                                {"n", repeats}}
                             .dump());
    else
      table.row({c.name, cold.strategy, milliseconds_text(cold.build_ms), milliseconds_text(cold.compile_ms),
                 milliseconds_text(cold.total_ms), milliseconds_text(cold.least_ms)});
  }
  if (!json) {
    fmt::print("{}\nmedians of {} and the fastest; the process's first compile took {} ms\n", table.text(), repeats,
               milliseconds_text(first.total_ms));
  }
  return 0;
}

Dispatch dispatch(Runtime& runtime, std::string_view op, const std::vector<Tensor>& inputs,
                  const Attributes& attributes, int batches) {
  constexpr int batch = 200;
  // Outputs passed to a handle are allocated at full capacity.
  const Op& found = *find_op(op);
  const Operands operands(found.schema(), inputs);
  const Plan plan = found.check(operands.request(attributes));
  std::vector<Tensor> outputs;
  for (size_t o = 0; o < found.schema().outputs.size(); ++o)
    outputs.push_back(Tensor::empty(plan.outputs[o].dtype, plan.outputs[o].dims));
  const Executable handle = runtime.compile(op, inputs, attributes).value();
  std::vector<double> run, call;
  for (int i = 0; i < batches; ++i) {
    double begin = elapsed_ms();
    for (int k = 0; k < batch; ++k) (void)runtime.run(op, inputs, attributes).value();
    run.push_back((elapsed_ms() - begin) / batch * 1000);
    begin = elapsed_ms();
    for (int k = 0; k < batch; ++k) handle(inputs, outputs).value();
    call.push_back((elapsed_ms() - begin) / batch * 1000);
  }
  return {median(run), median(call)};
}

int bench_dispatch(Runtime& runtime, bool json) {
  constexpr int batches = 200;
  Table table({"op", ">run() us", ">handle us"});
  for (const TinyCall& tiny : tiny_calls()) {
    const Dispatch d = dispatch(runtime, tiny.op, tiny.inputs, tiny.attributes, batches);
    if (json)
      fmt::print(
          "{}\n",
          nlohmann::ordered_json{{"op", tiny.op}, {"run_us", d.run_us}, {"handle_us", d.handle_us}, {"n", batches}}
              .dump());
    else
      table.row({tiny.op, microseconds_text(d.run_us), microseconds_text(d.handle_us)});
  }
  if (!json) fmt::print("{}\na call on four elements, cached; medians of {} batches\n", table.text(), batches);
  return 0;
}

int bench_roof(int threads, bool json) {
  ProbeTeam team(threads);
  Table table({">MiB", ">read GB/s", "loop", ">write GB/s", "loop"});
  for (const int64_t mib : {1, 4, 16, 32, 64, 128, 256}) {
    const int64_t bytes = mib << 20;
    const Tensor buffer = Tensor::empty(DType::u8, {bytes});
    std::memset(buffer.data(), 1, bytes);
    const std::vector<Span> spans{{buffer.data(), bytes}};
    const int repeats = static_cast<int>(std::max<int64_t>(1, 64 / mib));
    const auto speed = [&](const auto& pass) {
      std::vector<double> samples;
      pass();
      for (int i = 0; i < 11; ++i) {
        double ms = 0;
        for (int k = 0; k < repeats; ++k) ms += pass();
        samples.push_back(ms / repeats);
      }
      return static_cast<double>(bytes) / median(samples) * 1e-6;
    };
    std::pair<double, std::string> read, write;
    for (const ReadLoop& loop : read_loops())
      read = std::max(read, {speed([&] { return team.read(loop, spans); }), loop.name});
    for (const WriteLoop& loop : write_loops())
      write = std::max(write, {speed([&] { return team.write(loop, spans); }), loop.name});
    if (json)
      fmt::print("{}\n", nlohmann::ordered_json{{"mib", mib},
                                                {"threads", threads},
                                                {"read_gbs", read.first},
                                                {"read", read.second},
                                                {"write_gbs", write.first},
                                                {"write", write.second}}
                             .dump());
    else
      table.row({std::to_string(mib), fmt::format("{:.1f}", read.first), read.second,
                 fmt::format("{:.1f}", write.first), write.second});
  }
  if (!json)
    fmt::print("{}: best loops' medians, one buffer over and over\n\n{}", cpu_and_threads(threads), table.text());
  return 0;
}

}  // namespace gradloom::cli
