#pragma once
// The public interface: run an op by name, or compile it once and call the handle. Every function may be called from
// any thread; none throws (constructors do) and none aborts: errors come back as Result.
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gradloom/call_key.h"
#include "gradloom/differentiate.h"
#include "gradloom/executable.h"
#include "gradloom/op.h"
#include "gradloom/options.h"
#include "gradloom/report.h"
#include "gradloom/stmt.h"
#include "gradloom/tensor.h"
#include "gradloom/tune.h"

#pragma GCC visibility push(default)
namespace gradloom {

class [[gnu::visibility("hidden")]] Core;

class Runtime {
 public:
  explicit Runtime(RuntimeOptions options = {});
  ~Runtime();
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

  // Outputs from the recycling allocator, or from options.launch.allocate, in the op's output order; absent where not
  // requested.
  Result<std::vector<Tensor>> run(std::string_view op, std::span<const Tensor> inputs,
                                  const Attributes& attributes = {}, const RunOptions& options = {});
  // Outputs into the caller's memory, with any strides that give each element memory of its own: nothing is written
  // between the elements. An absent tensor: not requested. Outputs of data-dependent size (BroadcastGradientArgs) are
  // trimmed in place.
  Result<std::monostate> run_into(std::string_view op, std::span<const Tensor> inputs, std::span<Tensor> outputs,
                                  const Attributes& attributes = {}, const RunOptions& options = {});
  // A handle for hot loops; inputs' data other than shape-like ones is not read.
  Result<Executable> compile(std::string_view op, std::span<const Tensor> inputs, const Attributes& attributes = {},
                             const RunOptions& options = {});
  // A handle for hot loops over any shapes.
  Result<PreparedOp> prepare(std::string_view op, const Attributes& attributes = {}, const RunOptions& options = {});
  // What such a run gives, without running it: an entry for each output of the op, `wanted` where the op gives it and
  // the options ask for it. The dims of an output whose size the kernel finds are the largest possible. Operands need
  // no memory, but for the values of shape-like inputs, dense.
  Result<std::vector<OutputInfo>> infer_outputs(std::string_view op, std::span<const Operand> inputs,
                                                const Attributes& attributes = {},
                                                const RunOptions& options = {}) const;
  Result<std::vector<OutputInfo>> infer_outputs(std::string_view op, std::span<const Tensor> inputs,
                                                const Attributes& attributes = {},
                                                const RunOptions& options = {}) const;
  // The same with an embedder's op, which must outlive the Runtime and its handles:
  Result<std::vector<Tensor>> run(const Op& op, std::span<const Tensor> inputs, const Attributes& attributes = {},
                                  const RunOptions& options = {});
  Result<std::monostate> run_into(const Op& op, std::span<const Tensor> inputs, std::span<Tensor> outputs,
                                  const Attributes& attributes = {}, const RunOptions& options = {});
  Result<Executable> compile(const Op& op, std::span<const Tensor> inputs, const Attributes& attributes = {},
                             const RunOptions& options = {});
  Result<PreparedOp> prepare(const Op& op, const Attributes& attributes = {}, const RunOptions& options = {});
  Result<std::vector<OutputInfo>> infer_outputs(const Op& op, std::span<const Operand> inputs,
                                                const Attributes& attributes = {},
                                                const RunOptions& options = {}) const;
  Result<std::vector<OutputInfo>> infer_outputs(const Op& op, std::span<const Tensor> inputs,
                                                const Attributes& attributes = {},
                                                const RunOptions& options = {}) const;
  // A user's own loop nest, authored or scheduled: verified, lowered and compiled.
  Result<KernelExecutable> compile(const ir::Kernel& kernel, const KernelOptions& options = {});

  // The same of a nest in text form (text.h), rewritten by the steps of a schedule's trace, a line each, if there are
  // any: it then gets no default schedule.
  Result<KernelExecutable> compile_text(std::string_view nest, std::string_view trace = {},
                                        const KernelOptions& options = {});
  // The gradient of a nest, derived and proved or refused (differentiate.h), and compiled as any other.
  Result<KernelExecutable> gradient(const ir::Kernel& forward, const ir::Derivation& how,
                                    const KernelOptions& options = {});

  // Target cuda takes and returns tensors in its device's memory; shape-like inputs, and all tensors of
  // BroadcastGradientArgs, are in host memory. On a CPU these three do nothing: there is no device, a tensor is its own
  // copy.
  int device() const;  // -1: host memory
  // Waits for the stream, then reports the first out-of-range index found by launches since the last call (on any
  // stream; a stream that is still busy may report later).
  Result<std::monostate> synchronize(void* stream = nullptr);
  // A copy with the same dims and strides; both wait for the stream:
  Result<Tensor> to_device(const Tensor& tensor, void* stream = nullptr);
  Result<Tensor> to_host(const Tensor& tensor, void* stream = nullptr);

  // The last run or compile of this thread, if it was this Runtime's; else empty. Valid until the thread's next call of
  // this function.
  const KernelReport& last_report() const;
  Stats stats() const;
  void clear_cache();
  std::vector<CallKey> used_calls() const;  // of library ops: those whose kernels calls have used so far
  Result<PrewarmReport> prewarm(std::span<const CallKey> calls);  // compiles such kernels ahead of the calls

  // Measures the kernels that could serve the call, with these inputs' values and all of the runtime's threads, and
  // writes the result to the tuning log, whatever RuntimeOptions::tuning says; calls after it use it where that is not
  // off. Beside the inputs it needs twice the outputs' memory. Error(unsupported) for a target other than llvm;
  // Error(invalid_argument) for an any-shape call and one of a named strategy; Error(resource_exhausted) when the log
  // cannot be written; for a bad index value, the call's error.
  Result<TuneReport> tune(std::string_view op, std::span<const Tensor> inputs, const Attributes& attributes = {},
                          const RunOptions& options = {}, const TuneOptions& how = {});
  Result<TuneReport> tune(const Op& op, std::span<const Tensor> inputs, const Attributes& attributes = {},
                          const RunOptions& options = {}, const TuneOptions& how = {});
  // The same of a nest without a schedule, whose default schedule is what its variations are compared with. Arguments
  // as KernelExecutable's; buffers that the nest writes are written, as by a call.
  Result<TuneReport> tune(const ir::Kernel& kernel, std::span<const Tensor> buffers,
                          std::span<const int64_t> scalars = {}, const TuneOptions& how = {});

  void wait_for_background() const;  // until no specialisation is under way
  int threads() const;
  std::string target_name() const;  // "llvm x86-64-v3", "interpreter", "cuda-host sm_90"
  const ir::Target& target() const;

 private:
  std::shared_ptr<Core> core_;  // shared with the handles, which may outlive this
};

// The process's shared runtime, for libraries that live side by side in it: the first caller's options make it, those
// of later callers are not used. It lasts as long as somebody holds it.
Result<std::shared_ptr<Runtime>> shared_runtime(const RuntimeOptions& options = {});

}  // namespace gradloom

#pragma GCC visibility pop
