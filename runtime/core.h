#pragma once
// State shared by a Runtime and its handles: threads, memory, the target, the kernel cache.
#include <chrono>
#include <memory>
#include <mutex>
#include <string>

#include "gradloom/call_key.h"
#include "gradloom/options.h"
#include "gradloom/report.h"
#include "gradloom/tensor.h"
#include "runtime/backend/backend.h"
#include "runtime/build.h"
#include "runtime/cache/kernel_cache.h"
#include "runtime/cache/kernel_store.h"
#include "runtime/generic_first/specialise.h"
#include "runtime/memory/recycler.h"
#include "runtime/threads/threads.h"
#include "runtime/tuning/tuning_log.h"
#include "support/counter.h"
#include "support/fork.h"
#include "support/lasting.h"

namespace gradloom {

double milliseconds_since(std::chrono::steady_clock::time_point start);

class Core final : public KernelSource {
 public:
  // Throws Error(unsupported) for a target that this build or machine lacks.
  explicit Core(RuntimeOptions options);

  bool interprets() const { return backend_->runs_authored(); }
  const ir::Target& target() const override { return target_; }
  std::string target_name() const { return backend_->name(); }
  const Threads& threads() const { return threads_; }
  const std::shared_ptr<Recycler>& recycler() const { return recycler_; }
  KernelCache& cache() override { return cache_; }
  Stats stats() const;

  // Where this op's tensors are: -1 for host memory, always so for an op of shapes.
  int device_for(const OpSchema& schema) const;
  int device() const { return backend_->device(); }
  // The level that a call requests, or the target's default.
  Determinism level(const RunOptions& options) const { return options.determinism.value_or(own_determinism(target_)); }
  // Dense, contents unspecified. Throws Error(resource_exhausted).
  Tensor allocate(int device, DType dtype, const Dims& dims, const LaunchOptions& launch) const;
  // A copy on that device; dims and strides are unchanged. The tensor itself when it is there already.
  Tensor copy_to(int device, const Tensor& tensor, void* stream) const;
  void synchronize(void* stream) const;

  // The kernel of a call, built (or loaded) on a miss in memory; its report becomes this thread's last.
  KernelHandle kernel_for(const PlannedCall& call) override;
  // The same under the policy: `call`'s own kernel, or with generic_first the any-shape one. GPU kernels are always
  // specialised. It is kept for kept_kernel.
  KernelHandle kernel_by_policy(const PlannedCall& call, KeptKernels& kept);
  // The same for a call like the one that `kept` is of, without its request; null when another kernel is to serve.
  KernelHandle kept_kernel(const PlannedCall& call, const KeptKernels& kept);
  // The key of its kernel in memory: with tuning, one of a named strategy is apart.
  KernelKey key_in_memory(const PlannedCall& call) const {
    return KernelKey(call, tuning_ != Tuning::off && !call.options.strategy.empty());
  }
  // Builds, or loads from disk; bypasses the in-memory cache.
  std::shared_ptr<KernelEntry> build(const PlannedCall& call) override;
  // Records which kernel served a call, for last_report.
  void answered(const PlannedCall& call, const KernelHandle& entry) override { done(call, entry, false); }
  std::vector<CallKey> used_calls() const;
  // A user's kernel: verified, then found in memory, or lowered and compiled, or stored for the interpreter.
  KernelHandle kernel_for(const ir::Kernel& kernel, const KernelOptions& options);

  // Runs the kernel on this thread and the pool. Returns the smallest bad position, INT64_MAX when no Check failed.
  // Throws Error. Requires the library's floating-point mode.
  int64_t launch(const KernelEntry& entry, void* const* buffers, const int64_t* scalars,
                 const LaunchOptions& options = {}) const {
    return launch(entry, buffers, scalars, options, threads_, *recycler_);
  }
  int64_t launch(const KernelEntry& entry, void* const* buffers, const int64_t* scalars, const LaunchOptions& options,
                 const Threads& threads, Recycler& recycler) const override;

  // Tuning, of target llvm alone.
  // Throws Error(unsupported) for what is not tuned.
  void require_tunable(const std::string& name) const;
  TuningLog& tuning_log() const { return *tuning_log_; }  // once it is required
  // A kernel that is in no cache.
  std::shared_ptr<const KernelEntry> compile_apart(const BuiltKernel& built, const std::string& name) const;
  // Counts it; later calls look for their kernel anew.
  void end_tuning(const KernelKey& key);
  std::shared_ptr<KernelEntry> tuned_in_background(const PlannedCall& call,
                                                   const std::function<bool()>& stopped) override;

  const Specialiser& specialiser() const { return specialiser_; }

  const KernelReport& last_report() const;

 private:
  // The backend for this op's tensors: the target's, or the interpreter where they are in host memory and the target
  // has its own memory.
  const Backend& backend_for(const OpSchema& schema) const;
  // Fills in the code of a kernel in the backend's form, from the disk if its content is stored. Returns the kernel's
  // content, for the index.
  std::optional<ContentId> finish(KernelEntry& entry, KernelReport report, const ir::Kernel& kernel,
                                  const Backend& backend);
  std::shared_ptr<KernelEntry> build_or_load(const PlannedCall& call);
  // As the tuning log says; null where it has no entry, or, with a line in the library's log, one that does not serve.
  std::shared_ptr<KernelEntry> build_tuned(const PlannedCall& call);
  std::shared_ptr<KernelEntry> build_tuned(const ir::Kernel& kernel, std::optional<OpKey> key);
  std::optional<TuningEntry> tuning_entry(const std::string& op, const std::string& nest) const;
  using Replay = std::function<BuiltKernel()>;
  std::shared_ptr<KernelEntry> build_as(const TuningEntry& entry, std::optional<OpKey> key, KernelReport report,
                                        const Replay& replay);
  std::optional<OpKey> key_of(const PlannedCall& call) const;  // none for a kernel that is not stored
  std::shared_ptr<KernelEntry> load(const OpKey& key, bool any_shape);
  void log_made(const KernelEntry& entry, double ms) const;
  bool dumps() const { return !dump_folder_.empty(); }  // which needs the IR
  bool load_code(KernelEntry& entry, const KernelRecord& record);
  // The kernel of a call's strategy, or of its fallback; `finish` is applied to the one used.
  void build_for(const PlannedCall& call, const Finish& finish);
  // No fallback when the strategy was requested by name.
  void require_named(const PlannedCall& call, const KernelEntry& entry) const;
  bool generic_first(const PlannedCall& call) const;
  std::shared_ptr<KernelEntry> build_own(const ir::Kernel& kernel, std::string_view nest, const KernelOptions& options);
  void put_index(const OpKey& key, const ContentId& content, const KernelEntry& entry);
  void done(const PlannedCall& call, const KernelHandle& entry, bool built);
  void done(const KernelHandle& entry, bool built);
  // Writes the kernel's texts if a dump is enabled; never throws.
  void dump(std::string_view op, std::string_view strategy, const BuiltKernel& built) const noexcept;

  const InUse in_use_;  // first, to be let go of last
  const uint64_t id_;   // unique among all Cores ever created
  const std::unique_ptr<Backend> backend_, interpreter_;
  Threads threads_;
  ir::Target target_;
  std::shared_ptr<Recycler> recycler_;
  KernelCache cache_;
  const std::string dump_folder_;  // empty: no dump
  const BackendToolchain toolchain_;
  std::unique_ptr<KernelStore> store_;  // none if the backend stores no code, or when it is off
  const Policy policy_;
  const Tuning tuning_;
  std::unique_ptr<TuningLog> tuning_log_;  // of target llvm
  mutable Counter launches_, interpreter_launches_, tuned_, tuning_runs_;
  mutable Mutex mutex_;
  int64_t compiles_ = 0, interpreted_ = 0, strategies_refused_ = 0;
  double build_ms_ = 0, compile_ms_ = 0, load_ms_ = 0;
  CompileStages stages_;
  std::map<uint64_t, std::string>
      used_calls_;           // by their kernel keys' hashes, in saved form: an eighth of a CallKey's memory
  Specialiser specialiser_;  // last member: its threads use the others
};

}  // namespace gradloom
