#pragma once
// Handles of what a Runtime has compiled. Every function may be called from any thread; none throws or aborts: errors
// are returned in Result. A handle is cheap to copy and keeps its code alive, beyond its Runtime as well.
#include <memory>
#include <span>
#include <variant>

#include "gradloom/options.h"
#include "gradloom/report.h"
#include "gradloom/tensor.h"

#pragma GCC visibility push(default)
namespace gradloom {

class Runtime;

// A compiled op for one set of dtypes and shapes. Cheap to copy; keeps its code alive.
class Executable {
 public:
  Executable() = default;
  // Checks the arguments (dtypes, dims, strides, overlap, shape-like values) and launches. An absent output tensor is
  // not computed; the set of outputs must be the one compiled for. Outputs of data-dependent size
  // (BroadcastGradientArgs) keep the dims given, the largest possible; contents beyond the actual size are unspecified.
  // run_into returns the actual size.
  Result<std::monostate> operator()(std::span<const Tensor> inputs, std::span<const Tensor> outputs,
                                    const LaunchOptions& launch = {}) const;
  // The same, but outputs of data-dependent size are trimmed in place, as by Runtime::run_into. The next call needs the
  // untrimmed ones again.
  Result<std::monostate> run_into(std::span<const Tensor> inputs, std::span<Tensor> outputs,
                                  const LaunchOptions& launch = {}) const;
  const KernelReport& report() const;

 private:
  friend class Runtime;
  struct [[gnu::visibility("hidden")]] State;
  std::shared_ptr<State> state_;
};

// An op with its attributes and options, for inputs of any dtypes and shapes: what Runtime::run does, with the op
// looked up and its attributes checked once. A call whose dtypes, shapes and shape-like values are those of an earlier
// one skips the op's check, too. Kernels are found by shape, cached and compiled under the runtime's policy as for run;
// clearing or evicting them is as for run. Cheap to copy.
class PreparedOp {
 public:
  PreparedOp() = default;
  // As Runtime::run and Runtime::run_into; run gives the outputs that the options of Runtime::prepare ask for.
  Result<std::vector<Tensor>> run(std::span<const Tensor> inputs, const LaunchOptions& launch = {}) const;
  Result<std::monostate> run_into(std::span<const Tensor> inputs, std::span<Tensor> outputs,
                                  const LaunchOptions& launch = {}) const;
  // As Runtime::infer_outputs.
  Result<std::vector<OutputInfo>> infer_outputs(std::span<const Operand> inputs) const;
  Result<std::vector<OutputInfo>> infer_outputs(std::span<const Tensor> inputs) const;

 private:
  friend class Runtime;
  struct [[gnu::visibility("hidden")]] State;
  friend __attribute__((visibility("hidden"))) State& state_of(const PreparedOp& prepared);
  std::shared_ptr<State> state_;
};

// A user's own kernel, compiled. Arguments in the order of kernel.buffers and kernel.scalars.
class KernelExecutable {
 public:
  KernelExecutable() = default;
  // Dims and strides are checked against the tensors', scalars against their declared ranges. Scalars: one 64-bit slot
  // each. A failed Check returns Error(out_of_range).
  Result<std::monostate> operator()(std::span<const Tensor> buffers, std::span<const int64_t> scalars = {},
                                    const LaunchOptions& launch = {}) const;
  const KernelReport& report() const;

 private:
  friend class Runtime;
  struct [[gnu::visibility("hidden")]] State;
  std::shared_ptr<State> state_;
};

}  // namespace gradloom

#pragma GCC visibility pop
