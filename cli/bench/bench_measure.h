#pragma once
// Times one case against its roof: kernel and probe samples alternate.
#include <string>

#include "cli/bench/bench_cases.h"
#include "cli/bench/bench_probe.h"

namespace gradloom::cli {

// The names of the modes in tables.
inline constexpr const char* what_the_roof_is =
    "the time to read the call's inputs once and to write its output once, at the best speed measured here between the "
    "calls";

// preallocated: a handle, the same operands in every call. fresh: Runtime::run, a new output per call, released after
// it. rotated: a handle that cycles through operand sets whose total size exceeds three last-level caches.
enum class OutputMode : uint8_t { preallocated, fresh, rotated };
const char* to_string(OutputMode mode);

struct Measurement {
  std::string name, strategy;
  bool tuned = false;
  int threads = 1;
  OutputMode output = OutputMode::preallocated;
  double median_ms = 0, min_ms = 0;
  double read_ms = 0, write_ms = 0;  // the best probe's median for the compulsory bytes
  double least_roof_ms = 0;          // their fastest samples combined
  int samples = 0;
  std::optional<std::string> wrong;  // the first difference from the reference
  double largest_error = 0;          // from the reference, relative above 1
  int64_t bytes = 0;
  double roof_ms() const { return read_ms + write_ms; }
  double gbs() const { return static_cast<double>(bytes) / median_ms * 1e-6; }
};

double median(std::vector<double> values);  // 0 when empty
double elapsed_ms();                        // of a steady clock

// Holds a case's operands and reference, so that several modes share them.
class BenchOperands {
 public:
  explicit BenchOperands(const BenchCase& c);
  // One for each runtime, whose samples alternate.
  std::vector<Measurement> measure(const std::vector<Runtime*>& runtimes, ProbeTeam& team, OutputMode mode,
                                   const RunOptions& options, double seconds) const;
  Measurement measure(Runtime& runtime, ProbeTeam& team, OutputMode mode, const RunOptions& options,
                      double seconds) const {
    return measure(std::vector<Runtime*>{&runtime}, team, mode, options, seconds)[0];
  }
  const std::vector<Tensor>& inputs() const { return inputs_; }
  const Reference& reference() const { return reference_; }

 private:
  const BenchCase& case_;
  std::vector<Tensor> inputs_;
  Reference reference_;
};

}  // namespace gradloom::cli
