#pragma once
// Latencies measured apart from whole calls.
#include "gradloom/runtime.h"

namespace gradloom::cli {

// Each returns the command's exit code; with `json`, prints one object per line.
int bench_compile(Runtime& runtime, bool json);   // cold compiles of every case
int bench_dispatch(Runtime& runtime, bool json);  // cached calls by each interface, on a few elements
int bench_roof(int threads, bool json);           // read and write speeds by size

struct ColdCompile {
  std::string strategy;
  double build_ms = 0, compile_ms = 0, total_ms = 0;  // medians; total: the whole call
  double least_ms = 0;                                // the fastest whole call
};
struct BenchCase;
ColdCompile cold_compile(Runtime& runtime, const BenchCase& c, const RunOptions& options, int repeats);

// Of a handle's call, cached: the median of batches.
double handle_us(Runtime& runtime, std::string_view op, const std::vector<Tensor>& inputs, const Attributes& attributes,
                 int batches);

}  // namespace gradloom::cli
