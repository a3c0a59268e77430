#include "cli/bench/bench_measure.h"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "cli/bench/bench_roof.h"

namespace gradloom::cli {
namespace {

struct OperandSet {
  std::vector<Tensor> inputs, outputs;
  Tensor
      probed;  // as large as the output: the write probe's buffer, so that the kernel's output survives for the check
  std::vector<Span> reads;
  std::vector<Span> writes() const { return {{probed.data(), probed.elements() * 4}}; }
};

OperandSet make_set(std::vector<Tensor> inputs, const Dims& output) {
  OperandSet set{std::move(inputs), {Tensor::empty(DType::f32, output)}, Tensor::empty(DType::f32, output), {}};
  std::memset(set.outputs[0].data(), 0xff, set.outputs[0].elements() * 4);  // NaN: unwritten elements are detected
  std::memset(set.probed.data(), 0xff, set.probed.elements() * 4);
  return set;
}

int rotated_sets(int64_t set_bytes) {
  const int64_t total = 3 * last_level_cache_bytes();
  return static_cast<int>(std::max<int64_t>(3, total / std::max<int64_t>(1, set_bytes) + 1));
}

constexpr double shortest_sample_ms = 0.5;
constexpr int fewest_samples = 7, most_samples = 1000;

}  // namespace

const char* to_string(OutputMode mode) {
  switch (mode) {
    case OutputMode::preallocated:
      return "preallocated";
    case OutputMode::fresh:
      return "fresh";
    case OutputMode::rotated:
      return "rotated";
  }
  return "";
}

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const size_t middle = values.size() / 2;
  std::nth_element(values.begin(), values.begin() + middle, values.end());
  if (values.size() % 2 == 1) return values[middle];
  return (values[middle] + *std::max_element(values.begin(), values.begin() + middle)) / 2;
}

double elapsed_ms() {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

BenchOperands::BenchOperands(const BenchCase& c) : case_(c), inputs_(bench_inputs(c)), reference_(c, inputs_) {}

Measurement BenchOperands::measure(Runtime& runtime, ProbeTeam& team, OutputMode mode, const RunOptions& options,
                                   double seconds) const {
  const bool rotated = mode == OutputMode::rotated;
  std::vector<OperandSet> sets;
  sets.push_back(make_set(inputs_, case_.output));
  if (rotated)
    for (int left = rotated_sets(case_.bytes_read + case_.bytes_written) - 1; left > 0; --left) {
      std::vector<Tensor> copies;
      for (const Tensor& input : inputs_) copies.push_back(copy_of(input));
      sets.push_back(make_set(std::move(copies), case_.output));
    }
  for (OperandSet& set : sets)
    for (size_t i = 0; i < set.inputs.size(); ++i)
      if (case_.inputs[i].kind != BenchInput::shape_like)
        set.reads.push_back({set.inputs[i].data(), set.inputs[i].elements() * size_of(set.inputs[i].dtype())});

  const Executable handle = runtime.compile(case_.op, inputs_, case_.attributes, options).value();
  size_t turn = 0;
  const auto next_set = [&]() -> OperandSet& { return sets[turn++ % sets.size()]; };
  const auto call = [&] {
    OperandSet& set = next_set();
    if (mode == OutputMode::fresh) {
      set.outputs.clear();  // the last call's output is released before this one allocates its own
      set.outputs = runtime.run(case_.op, set.inputs, case_.attributes, options).value();
    } else {
      handle(set.inputs, set.outputs).value();
    }
  };
  for (size_t i = 0; i < sets.size(); ++i) call();
  double begin = elapsed_ms();
  call();
  const int batch = std::max(1, static_cast<int>(shortest_sample_ms / std::max(1e-4, elapsed_ms() - begin)));

  Roof roof(team, !rotated);
  roof.select(sets.back().reads, sets.back().writes());
  std::vector<double> kernel;
  const double deadline = elapsed_ms() + seconds * 1000;
  while (static_cast<int>(kernel.size()) < most_samples &&
         (static_cast<int>(kernel.size()) < fewest_samples || elapsed_ms() < deadline)) {
    if (!rotated) call();  // untimed: the probes have evicted the operands from the caches
    begin = elapsed_ms();
    for (int b = 0; b < batch; ++b) call();
    kernel.push_back((elapsed_ms() - begin) / batch);
    const OperandSet& next = next_set();
    roof.sample(next.reads, next.writes());
  }

  Measurement m{case_.name, handle.report().strategy};
  m.threads = runtime.threads();
  m.output = mode;
  m.median_ms = median(kernel);
  m.min_ms = *std::min_element(kernel.begin(), kernel.end());
  m.read_ms = roof.read_ms();
  m.write_ms = roof.write_ms();
  m.least_roof_ms = roof.least_ms();
  m.samples = static_cast<int>(kernel.size());
  m.bytes = case_.bytes_read + case_.bytes_written;
  for (const OperandSet& set : sets)
    if (!m.wrong) m.wrong = reference_.difference(set.outputs[0]);
  m.largest_error = reference_.largest_error(sets[0].outputs[0]);
  return m;
}

}  // namespace gradloom::cli
