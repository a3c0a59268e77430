#pragma once
// The factors of a call in the sweep, and their values.
#include <random>
#include <string>
#include <vector>

#include "gradloom/op.h"
#include "gradloom/target.h"

namespace gradloom::sweep {

enum Factor : int {
  op_of,
  dtype_of,
  strategy_of,
  level_of,
  threads_of,
  target_of,
  kernel_of,
  accumulate_of,
  extent_of,
  strides_of,
  traffic_of,
  factors
};
enum Extent : int {
  zero,
  one,
  two,
  three,
  below_vector,
  vector,
  above_vector,
  below_strip,
  strip,
  above_strip,
  below_tile,
  tile,
  above_tile
};
enum Strides : int { dense, negative, gapped, expanded };
enum Traffic : int {
  few_bytes,
  parallel_traffic,
  streamed
};  // thresholds of schedules: large enough for threads, larger than the caches
enum Executor : int { on_llvm, on_cuda_host, on_cuda };

inline const std::vector<std::string> strategy_names{
    "direct", "flat",  "row",    "strip", "pipelined", "grouped", "sorted",  "chunked",      "partition", "bins",
    "atomic", "block", "staged", "split", "blocks",    "matrix",  "touched", "touched_rows", "in_place"};

inline const std::vector<std::vector<std::string>>& factor_names() {
  static const std::vector<std::vector<std::string>> names = [] {
    std::vector<std::vector<std::string>> all(factors);
    for (const Op* op : all_ops()) all[op_of].push_back(op->schema().name);
    for (int t = 0; t < dtype_count; ++t) all[dtype_of].push_back(to_string(static_cast<DType>(t)));
    for (const std::string& name : strategy_names) all[strategy_of].push_back("strategy " + name);
    all[level_of] = {"sequential", "run_to_run", "relaxed"};
    all[threads_of] = {"1 thread", "2 threads", "3 threads", "4 threads"};
    all[target_of] = {"llvm", "cuda-host", "cuda"};
    all[kernel_of] = {"specialised", "any shape"};
    all[accumulate_of] = {"overwriting", "accumulating"};
    all[extent_of] = {"extent 0",  "extent 1", "extent 2",  "extent 3", "vector - 1", "vector",  "vector + 1",
                      "strip - 1", "strip",    "strip + 1", "tile - 1", "tile",       "tile + 1"};
    all[strides_of] = {"dense", "negative strides", "gaps", "stride 0"};
    all[traffic_of] = {"few bytes", "worth threads", "streamed"};
    return all;
  }();
  return names;
}

inline std::vector<DType> dtypes_of(const Op& op) {
  for (const ArgumentSchema& input : op.schema().inputs)
    if (!input.shape_like && input.name != "indices" && input.name != "offsets") return input.dtypes;
  return {};
}

class Numbers {
 public:
  explicit Numbers(uint64_t seed) : engine_(seed * 0x9e3779b97f4a7c15u + 1) {}
  uint64_t next() { return engine_(); }
  uint64_t below(uint64_t n) { return engine_() % n; }
  bool one_in(uint64_t n) { return below(n) == 0; }

 private:
  std::mt19937_64 engine_;
};

}  // namespace gradloom::sweep
