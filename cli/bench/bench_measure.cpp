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

Tensor make_output(const Dims& dims) {
  Tensor output = Tensor::empty(DType::f32, dims);
  std::memset(output.data(), 0xff, output.elements() * 4);  // NaN: unwritten elements are detected
  return output;
}

OperandSet make_set(std::vector<Tensor> inputs, const Dims& output) {
  return {std::move(inputs), {make_output(output)}, make_output(output), {}};
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

namespace {

// A runtime's kernel of a case, and its samples.
struct Contender {
  Runtime* runtime;
  Executable handle;
  std::vector<OperandSet> sets;
  int batch = 1;
  size_t turn = 0;
  std::vector<double> ms;

  OperandSet& next_set() { return sets[turn++ % sets.size()]; }
};

}  // namespace

std::vector<Measurement> BenchOperands::measure(const std::vector<Runtime*>& runtimes, ProbeTeam& team, OutputMode mode,
                                                const RunOptions& options, double seconds) const {
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

  std::vector<Contender> contenders;
  for (Runtime* runtime : runtimes) {
    contenders.push_back({runtime, runtime->compile(case_.op, inputs_, case_.attributes, options).value(), sets});
    if (contenders.size() == 1) continue;
    for (OperandSet& set : contenders.back().sets) set.outputs = {make_output(case_.output)};
  }
  const auto call = [&](Contender& c) {
    OperandSet& set = c.next_set();
    if (mode == OutputMode::fresh) {
      set.outputs.clear();  // the last call's output is released before this one allocates its own
      set.outputs = c.runtime->run(case_.op, set.inputs, case_.attributes, options).value();
    } else {
      c.handle(set.inputs, set.outputs).value();
    }
  };
  const auto sample = [&](Contender& c) {
    if (!rotated) call(c);  // untimed: what ran before has evicted the operands from the caches
    const double begin = elapsed_ms();
    for (int b = 0; b < c.batch; ++b) call(c);
    c.ms.push_back((elapsed_ms() - begin) / c.batch);
  };
  for (Contender& c : contenders) {
    for (size_t i = 0; i < c.sets.size(); ++i) call(c);
    const double begin = elapsed_ms();
    call(c);
    c.batch = std::max(1, static_cast<int>(shortest_sample_ms / std::max(1e-4, elapsed_ms() - begin)));
  }

  Roof roof(team, !rotated);
  roof.select(sets.back().reads, sets.back().writes());
  const double deadline = elapsed_ms() + seconds * 1000 * static_cast<double>(contenders.size());
  for (int n = 0; n < most_samples && (n < fewest_samples || elapsed_ms() < deadline); ++n) {
    for (Contender& c : contenders) sample(c);
    const OperandSet& next = contenders[0].next_set();
    roof.sample(next.reads, next.writes());
  }

  std::vector<Measurement> measurements;
  for (const Contender& c : contenders) {
    Measurement m{case_.name, c.handle.report().strategy, c.handle.report().tuned};
    m.threads = c.runtime->threads();
    m.output = mode;
    m.median_ms = median(c.ms);
    m.min_ms = *std::min_element(c.ms.begin(), c.ms.end());
    m.read_ms = roof.read_ms();
    m.write_ms = roof.write_ms();
    m.least_roof_ms = roof.least_ms();
    m.samples = static_cast<int>(c.ms.size());
    m.bytes = case_.bytes_read + case_.bytes_written;
    for (const OperandSet& set : c.sets)
      if (!m.wrong) m.wrong = reference_.difference(set.outputs[0]);
    m.largest_error = reference_.largest_error(c.sets[0].outputs[0]);
    measurements.push_back(std::move(m));
  }
  return measurements;
}

}  // namespace gradloom::cli
