#include "cli/bench/bench_latency.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>

#include "cli/bench/bench_gru.h"
#include "cli/bench/bench_measure.h"
#include "cli/text.h"
#include "gradloom/gradloom.h"

namespace gradloom::cli {
namespace {

struct OpCall {
  std::string op;
  std::vector<Tensor> inputs;
  Attributes attributes;
};

Tensor ints(std::vector<int64_t> values) {
  return Tensor::of<int64_t>(DType::i64, {static_cast<int64_t>(values.size())}, values);
}

std::vector<OpCall> tiny_calls() {
  const Tensor four = Tensor::of<float>(DType::f32, {4}, {1, 2, 3, 4}),
               square = Tensor::of<float>(DType::f32, {2, 2}, {1, 2, 3, 4});
  return {{"GatherGrad", {ints({1}), ints({0}), Tensor::of<float>(DType::f32, {1}, {1})}, {{"axis", int64_t{0}}}},
          {"BroadcastGrad", {square, ints({2})}, {}},
          {"BroadcastGradientArgs", {ints({2, 2}), ints({1, 2})}, {}},
          {"GatherElementsGrad", {four, ints({4}), ints({3, 0, 1, 1})}, {{"axis", int64_t{0}}}},
          {"GatherGrad", {ints({4}), ints({3, 0, 1, 1}), four}, {{"axis", int64_t{0}}}},
          {"SliceGrad", {Tensor::of<float>(DType::f32, {2}, {1, 2}), ints({4}), ints({1}), ints({3})}, {}}};
}

std::string microseconds_text(double us) { return fmt::format("{:.3g}", us); }

// From C, through the handle for any shapes, on DLPack tensors.
class PreparedInC {
 public:
  PreparedInC(gradloom_runtime* runtime, const OpCall& tiny, const std::vector<Tensor>& outputs) {
    gradloom_attributes* attributes = nullptr;
    require(gradloom_attributes_create(&attributes));
    for (const auto& [name, value] : tiny.attributes)
      require(gradloom_attributes_set_int(attributes, name.c_str(), std::get<int64_t>(value)));
    require(gradloom_prepare(runtime, tiny.op.c_str(), attributes, nullptr, &prepared_));
    gradloom_attributes_destroy(attributes);
    for (const Tensor& input : tiny.inputs) inputs_.push_back(&keep(input));
    for (const Tensor& output : outputs) outputs_.push_back(&keep(output));
    for (const DLTensor* output : outputs_) shapes_.emplace_back(output->shape, output->shape + output->ndim);
  }
  ~PreparedInC() {
    gradloom_prepared_destroy(prepared_);
    for (DLManagedTensor* tensor : tensors_) tensor->deleter(tensor);
  }
  PreparedInC(const PreparedInC&) = delete;
  PreparedInC& operator=(const PreparedInC&) = delete;
  void operator()() {
    for (size_t o = 0; o < outputs_.size(); ++o)  // a size that the kernel found was written there
      std::copy(shapes_[o].begin(), shapes_[o].end(), outputs_[o]->shape);
    require(gradloom_prepared_run_into(prepared_, inputs_.data(), static_cast<int32_t>(inputs_.size()), nullptr,
                                       outputs_.data(), static_cast<int32_t>(outputs_.size())));
  }

 private:
  static void require(gradloom_status status) {
    if (status != GRADLOOM_OK) throw Error(ErrorCode::internal, gradloom_last_error());
  }
  DLTensor& keep(const Tensor& tensor) {
    tensors_.push_back(tensor.to_dlpack());
    return tensors_.back()->dl_tensor;
  }

  gradloom_prepared* prepared_ = nullptr;
  std::vector<DLManagedTensor*> tensors_;
  std::vector<const DLTensor*> inputs_;
  std::vector<DLTensor*> outputs_;
  std::vector<std::vector<int64_t>> shapes_;
};

// Microseconds of a call, over a batch of them.
template <class Call>
double time_batch(Call&& call) {
  constexpr int batch = 200;
  const double begin = elapsed_ms();
  for (int k = 0; k < batch; ++k) call();
  return (elapsed_ms() - begin) / batch * 1000;
}

// Outputs for a handle are of full capacity.
std::vector<Tensor> outputs_for(const Runtime& runtime, std::string_view op, const std::vector<Tensor>& inputs,
                                const Attributes& attributes) {
  std::vector<Tensor> outputs;
  const std::vector<OutputInfo> infos = runtime.infer_outputs(op, inputs, attributes).value();
  for (const OutputInfo& info : infos) outputs.push_back(Tensor::empty(info.dtype, info.dims));
  return outputs;
}

struct Dispatch {
  std::vector<double> run, prepared, handle, c_prepared;
};

Dispatch dispatch(Runtime& runtime, gradloom_runtime* c_runtime, const OpCall& tiny, int batches) {
  const std::vector<Tensor> outputs = outputs_for(runtime, tiny.op, tiny.inputs, tiny.attributes);
  const Executable handle = runtime.compile(tiny.op, tiny.inputs, tiny.attributes).value();
  const PreparedOp prepared = runtime.prepare(tiny.op, tiny.attributes).value();
  PreparedInC from_c(c_runtime, tiny, outputs);
  Dispatch us;
  for (int i = 0; i < batches; ++i) {
    us.run.push_back(time_batch([&] { (void)runtime.run(tiny.op, tiny.inputs, tiny.attributes).value(); }));
    us.prepared.push_back(time_batch([&] { (void)prepared.run(tiny.inputs).value(); }));
    us.handle.push_back(time_batch([&] { handle(tiny.inputs, outputs).value(); }));
    us.c_prepared.push_back(time_batch([&] { from_c(); }));
  }
  return us;
}

ColdCompile cold_compile(Runtime& runtime, std::string_view op, const std::vector<Tensor>& inputs,
                         const Attributes& attributes, const RunOptions& options, int repeats) {
  std::vector<double> build, compile, total;
  std::string strategy;
  for (int i = 0; i < repeats; ++i) {
    runtime.clear_cache();
    const double begin = elapsed_ms();
    const Executable handle = runtime.compile(op, inputs, attributes, options).value();
    total.push_back(elapsed_ms() - begin);
    build.push_back(handle.report().build_ms);
    compile.push_back(handle.report().compile_ms);
    strategy = handle.report().strategy;
  }
  return {strategy, median(build), median(compile), median(total), *std::min_element(total.begin(), total.end())};
}

// The gradients of the declared ops: inputs without values, whose descriptors alone matter.
std::vector<OpCall> declared_gradients() {
  static const double nothing = 0;
  const auto of = [&](const Dims& dims, DType dtype = DType::f32) { return Tensor::borrow(&nothing, dtype, dims); };
  const Tensor all = of({1 << 24}), rows = of({8192, 1024}), columns = of({1024}), a_row = of({8192, 1});
  return {{"ReluGrad", {all, all}, {}},
          {"GeluGrad", {all, all}, {}},
          {"FastGeluGrad", {all, all}, {}},
          {"SoftmaxGrad_13", {rows, rows}, {}},
          {"LogSoftmaxGrad_13", {rows, rows}, {}},
          {"LayerNormalizationGrad", {rows, rows, columns, a_row, a_row}, {}},
          {"SoftmaxCrossEntropyLossGrad", {of({}), of({4096, 32000}), of({4096}, DType::i64)}, {}}};
}

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
  return cold_compile(runtime, c.op, inputs, c.attributes, options, repeats);
}

int bench_compile(Runtime& runtime, bool json) {
  constexpr int repeats = 15;
  const ColdCompile first = cold_compile(runtime, bench_cases().back(), {}, 1);
  Table table({"case", "strategy", ">build ms", ">compile ms", ">total ms", ">least ms"});
  const auto add = [&](const std::string& name, const ColdCompile& cold) {
    if (json)
      fmt::print("{}\n", nlohmann::ordered_json{{"case", name},
                                                {"strategy", cold.strategy},
                                                {"build_ms", cold.build_ms},
                                                {"compile_ms", cold.compile_ms},
                                                {"total_ms", cold.total_ms},
                                                {"least_ms", cold.least_ms},
                                                {"n", repeats}}
                             .dump());
    else
      table.row({name, cold.strategy, milliseconds_text(cold.build_ms), milliseconds_text(cold.compile_ms),
                 milliseconds_text(cold.total_ms), milliseconds_text(cold.least_ms)});
  };
  for (const BenchCase& c : bench_cases()) add(c.name, cold_compile(runtime, c, {}, repeats));
  for (const OpCall& c : declared_gradients())
    add(c.op, cold_compile(runtime, c.op, c.inputs, c.attributes, {}, repeats));
  // The largest kernels there are, for every shape.
  const GruOperands gru(gru_cases().back(), runtime);
  const std::vector<Tensor> forward(gru.inputs.begin(), gru.inputs.begin() + 6);
  RunOptions any_shape;
  any_shape.any_shape = true;
  add("GRUTraining, any shape", cold_compile(runtime, "GRUTraining", forward, gru.attributes, any_shape, repeats));
  add("GRUGrad, any shape", cold_compile(runtime, "GRUGrad", gru.inputs, gru.attributes, any_shape, repeats));
  if (!json) {
    fmt::print("{}\nmedians of {} and the fastest; the process's first compile took {} ms\n", table.text(), repeats,
               milliseconds_text(first.total_ms));
  }
  return 0;
}

double handle_us(Runtime& runtime, std::string_view op, const std::vector<Tensor>& inputs, const Attributes& attributes,
                 int batches) {
  const std::vector<Tensor> outputs = outputs_for(runtime, op, inputs, attributes);
  const Executable handle = runtime.compile(op, inputs, attributes).value();
  std::vector<double> us;
  for (int i = 0; i < batches; ++i) us.push_back(time_batch([&] { handle(inputs, outputs).value(); }));
  return median(us);
}

int bench_dispatch(Runtime& runtime, bool json) {
  constexpr int batches = 200;
  gradloom_runtime_options options;
  gradloom_runtime_options_init(&options);
  options.threads = runtime.threads();
  gradloom_runtime* c_runtime = nullptr;
  if (gradloom_runtime_create(&options, &c_runtime) != GRADLOOM_OK)
    throw Error(ErrorCode::internal, gradloom_last_error());
  Table table({"op", ">run() us", ">prepared us", ">handle us", ">prepared, from C us"});
  for (const OpCall& tiny : tiny_calls()) {
    const Dispatch us = dispatch(runtime, c_runtime, tiny, batches);
    const double run = median(us.run), prepared = median(us.prepared), handle = median(us.handle),
                 c_prepared = median(us.c_prepared);
    if (json)
      fmt::print("{}\n", nlohmann::ordered_json{{"op", tiny.op},
                                                {"run_us", run},
                                                {"prepared_us", prepared},
                                                {"handle_us", handle},
                                                {"c_prepared_us", c_prepared},
                                                {"n", batches}}
                             .dump());
    else
      table.row({tiny.op, microseconds_text(run), microseconds_text(prepared), microseconds_text(handle),
                 microseconds_text(c_prepared)});
  }
  gradloom_runtime_destroy(c_runtime);
  if (!json)
    fmt::print(
        "{}\nrun, prepared: new outputs; handle, from C: into the caller's. A call on four elements (the first: "
        "on one), cached; medians of {} batches\n",
        table.text(), batches);
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
