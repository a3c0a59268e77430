#pragma once
// The calls that are timed: the shapes of the peer comparison (float32, int64 indices), their inputs, and a plain
// reference for each; and those of GRUGrad.
#include <optional>
#include <string>
#include <vector>

#include "gradloom/runtime.h"

namespace gradloom::cli {

struct BenchInput {
  enum Kind : uint8_t { values, uniform, zipf, all_equal, given, shape_like } kind;
  Dims dims;
  int64_t bound = 0;          // uniform, zipf, all_equal: indices in [0, bound)
  std::vector<int64_t> ints;  // shape_like
};

// The output index of each element along one axis of dY, computed independently of the op under test.
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
// By case name, group name (ge, gg, sl, bg) or "all", `on_gpu` with those that only gpu-time has. Throws UsageError for
// any other.
std::vector<const BenchCase*> chosen_cases(const std::vector<std::string>& names, bool on_gpu = false);

// float32, forward, linear before reset, with B, initial_h and dHAll; all five gradients.
struct GruCase {
  std::string name;
  int64_t steps, batch, inputs, hidden;
  // dX and dW, and the recurrent product and dR. Whatever else a GRUGrad recomputes is not counted.
  double flops() const {
    return 2.0 * static_cast<double>(steps * batch) * 3.0 * static_cast<double>(hidden) * 2.0 *
           static_cast<double>(inputs + hidden);
  }
};
const std::vector<GruCase>& gru_cases();

std::vector<Tensor> bench_inputs(const BenchCase& c);
// Values as f32 <-> f16 or bf16, rounded once; the tensor itself where it has that dtype or holds integers.
Tensor values_as(DType dtype, const Tensor& dense);
// A dense copy in newly allocated memory.
Tensor copy_of(const Tensor& dense);
// The operands as an op sees them, without data but for the shape-like ones.
std::vector<Operand> bench_operands(const BenchCase& c, std::vector<std::vector<int64_t>>& storage);

// The expected output: copies, and scatters accumulated in index order, are compared bit for bit; other sums within
// 4e-7 of the sum of absolute values, from f64. In f16 and bf16 both are rounded once more, from sums of f32.
class Reference {
 public:
  // Values of the inputs as f32. `in_order`: the reference of a scatter at level `sequential`. `dtype`: of the outputs
  // to be compared.
  Reference(const BenchCase& c, const std::vector<Tensor>& inputs, bool in_order = true, DType dtype = DType::f32);
  // One line on the first difference; nothing if equal.
  std::optional<std::string> difference(const Tensor& output) const;
  double largest_error(const Tensor& output) const;  // relative above 1

 private:
  template <class Add>
  void scatter(const BenchCase& c, const std::vector<Tensor>& inputs, const Add& add);
  void slice(const BenchCase& c, const Tensor& dy);
  void sum(const BenchCase& c, const Tensor& dy);

  Tensor want_;
  std::vector<double> sums_, magnitudes_;  // where the summation order is unspecified
  double rounding_ = 0;                    // of dtype, relative
};

}  // namespace gradloom::cli
