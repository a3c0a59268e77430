#pragma once
// The calls that are timed: the shapes of the peer comparison (float32, int64 indices), their inputs, and a plain reference for each.
#include <optional>
#include <string>
#include <vector>

#include "runtime/runtime.h"

namespace gradloom::cli {

struct BenchInput {
  enum Kind : uint8_t { values, uniform, zipf, given, shape_like } kind;
  Dims dims;
  int64_t bound = 0;          // uniform, zipf: indices in [0, bound)
  std::vector<int64_t> ints;  // shape_like
};

// Where the elements along one axis of dY go, worked out by hand and not by the op under test.
struct SlicedAxis {
  int64_t first, step, count;
};

struct BenchCase {
  std::string name, group, op;
  Attributes attributes;
  std::vector<BenchInput> inputs;
  Dims output;
  int axis = 0;                               // scatters
  std::vector<SlicedAxis> slices;             // slices
  int64_t bytes_read = 0, bytes_written = 0;  // compulsory traffic: every value and index once
};

const std::vector<BenchCase>& bench_cases();
// By case name, group name (ge, gg, sl, bg) or "all". Throws UsageError for any other.
std::vector<const BenchCase*> chosen_cases(const std::vector<std::string>& names);

std::vector<Tensor> bench_inputs(const BenchCase& c);
// A dense copy in fresh memory.
Tensor copy_of(const Tensor& dense);
// The operands as an op sees them, without data but for the shape-like ones.
std::vector<Operand> bench_operands(const BenchCase& c, std::vector<std::vector<int64_t>>& storage);

// What the output must be: scatters and copies bit for bit, added in index order; sums within 4e-7 of the sum of absolute values, from f64.
class Reference {
 public:
  Reference(const BenchCase& c, const std::vector<Tensor>& inputs);
  // One line on the first difference, or nothing.
  std::optional<std::string> difference(const Tensor& output) const;
  double largest_error(const Tensor& output) const;  // relative above 1

 private:
  void scatter(const BenchCase& c, const std::vector<Tensor>& inputs);
  void slice(const BenchCase& c, const Tensor& dy);
  void sum(const BenchCase& c, const Tensor& dy);

  Tensor want_;
  std::vector<double> sums_, magnitudes_;  // of a summed case
};

}  // namespace gradloom::cli
