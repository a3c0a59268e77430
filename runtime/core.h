#pragma once
// What a Runtime and its handles share: threads, memory, the target, the kernel cache.
#include <memory>
#include <mutex>
#include <string>

#include "codegen/llvm/compiler.h"
#include "runtime/build.h"
#include "runtime/counter.h"
#include "runtime/gpu.h"
#include "runtime/kernel_cache.h"
#include "runtime/recycler.h"
#include "runtime/runtime.h"
#include "runtime/threads.h"

namespace gradloom {

class Core {
 public:
  // Throws Error(unsupported) for a target that this build or machine lacks.
  explicit Core(RuntimeOptions options);

  bool interprets() const { return interprets_; }
  const ir::Target& target() const { return target_; }
  std::string target_name() const;
  const Threads& threads() const { return threads_; }
  const std::shared_ptr<Recycler>& recycler() const { return recycler_; }
  KernelCache& cache() { return cache_; }
  Stats stats() const;

  // Whose memory this op's tensors are: -1 for the host, always so for an op whose inputs are all shape-like.
  int device_for(const OpSchema& schema) const;
  int device() const { return gpu_ ? gpu_->device() : -1; }
  // Dense, contents unspecified. Throws Error(resource_exhausted).
  Tensor allocate(int device, DType dtype, const Dims& dims, const LaunchOptions& launch) const;
  // Dims and strides stay. The tensor itself when it is there already.
  Tensor copy_to(int device, const Tensor& tensor, void* stream) const;
  void synchronize(void* stream) const;

  // The cached kernel for a plan, built when there is none; its report is this thread's last.
  KernelHandle kernel_for(const Op& op, const Plan& plan, const std::string& strategy, const RunOptions& options, uint32_t outputs_wanted,
                          int64_t output_alignment);
  // A user's kernel: verified, lowered and compiled, or kept for the interpreter.
  std::shared_ptr<KernelEntry> build_own(const ir::Kernel& kernel);

  // Runs the kernel on this thread and the pool. Gives the smallest bad position, INT64_MAX when no Check failed. Throws Error. Requires the library's
  // floating-point mode.
  int64_t launch(const KernelEntry& entry, void* const* buffers, const int64_t* scalars, const LaunchOptions& options = {}) const;

  const KernelReport& last_report() const;

 private:
  std::shared_ptr<KernelEntry> build(const Op& op, const Plan& plan, const std::string& strategy, const RunOptions& options, int64_t output_alignment);
  void finish(KernelEntry& entry, KernelReport report, const ir::Kernel& lowered, bool interpreted);
  // Writes the kernel's texts, where a dump is asked for; never throws.
  void dump(std::string_view op, std::string_view strategy, const BuiltKernel& built) const noexcept;

  const uint64_t id_;  // of no other Core, ever
  const bool interprets_;
  std::unique_ptr<Gpu> gpu_;  // null for the CPU
  codegen::Isa isa_;          // empty without LLVM
  Threads threads_;
  ir::Target target_;
  std::shared_ptr<Recycler> recycler_;
  KernelCache cache_;
  const std::string dump_folder_;  // empty: no dump
  mutable Counter launches_;
  mutable std::mutex mutex_;
  int64_t compiles_ = 0;
  double compile_ms_ = 0;
  CompileStages stages_;
};

}  // namespace gradloom
