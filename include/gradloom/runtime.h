#pragma once
// The public interface: run an op by name, or compile it once and call the handle. Every function may be called from
// any thread; none throws (constructors do) and none aborts: errors come back as Result.
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gradloom/call_key.h"
#include "gradloom/op.h"
#include "gradloom/options.h"
#include "gradloom/report.h"
#include "gradloom/stmt.h"
#include "gradloom/tensor.h"

namespace gradloom {

class Core;
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
  struct State;
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

 private:
  friend class Runtime;
  struct State;
  std::shared_ptr<State> state_;
};

class Runtime {
 public:
  explicit Runtime(RuntimeOptions options = {});
  ~Runtime();
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

  // Outputs from the recycling allocator, in the op's output order; absent where not requested.
  Result<std::vector<Tensor>> run(std::string_view op, std::span<const Tensor> inputs,
                                  const Attributes& attributes = {}, const RunOptions& options = {});
  // Outputs into the caller's dense memory; an absent tensor: not requested. Outputs of data-dependent size
  // (BroadcastGradientArgs) are trimmed in place.
  Result<std::monostate> run_into(std::string_view op, std::span<const Tensor> inputs, std::span<Tensor> outputs,
                                  const Attributes& attributes = {}, const RunOptions& options = {});
  // A handle for hot loops; inputs' data other than shape-like ones is not read.
  Result<Executable> compile(std::string_view op, std::span<const Tensor> inputs, const Attributes& attributes = {},
                             const RunOptions& options = {});
  // The same with an embedder's op, which must outlive the Runtime and its handles.
  Result<std::vector<Tensor>> run(const Op& op, std::span<const Tensor> inputs, const Attributes& attributes = {},
                                  const RunOptions& options = {});
  Result<std::monostate> run_into(const Op& op, std::span<const Tensor> inputs, std::span<Tensor> outputs,
                                  const Attributes& attributes = {}, const RunOptions& options = {});
  Result<Executable> compile(const Op& op, std::span<const Tensor> inputs, const Attributes& attributes = {},
                             const RunOptions& options = {});
  // A user's own loop nest, authored or scheduled: verified, lowered and compiled.
  Result<KernelExecutable> compile(const ir::Kernel& kernel, const KernelOptions& options = {});

  // Target cuda takes and returns tensors in its device's memory; shape-like inputs, and all tensors of
  // BroadcastGradientArgs, are in host memory. On a CPU these three do nothing: there is no device, a tensor is its own
  // copy.
  int device() const;  // -1: host memory
  // Waits for the stream, then reports the first out-of-range index found by launches since the last call (on any
  // stream; a stream that is still busy may report later).
  Result<std::monostate> synchronize(void* stream = nullptr);
  // A copy with the same dims and strides; both wait for the stream.
  Result<Tensor> to_device(const Tensor& tensor, void* stream = nullptr);
  Result<Tensor> to_host(const Tensor& tensor, void* stream = nullptr);

  // The last run or compile of this thread, if it was this Runtime's; else empty. Valid until the thread's next call of
  // this function.
  const KernelReport& last_report() const;
  Stats stats() const;
  void clear_cache();
  // The kernels of library ops that calls have used so far, and compiling such kernels ahead of the calls.
  std::vector<CallKey> used_calls() const;
  Result<PrewarmReport> prewarm(std::span<const CallKey> calls);
  void wait_for_background() const;  // until no specialisation is under way
  int threads() const;
  std::string target_name() const;  // "llvm x86-64-v3", "interpreter", "cuda-host sm_90"
  const ir::Target& target() const;

 private:
  std::shared_ptr<Core> core_;  // shared with the handles, which may outlive this
};

}  // namespace gradloom
