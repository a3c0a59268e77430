#pragma once
// The public interface: run an op by name, or compile it once and call the handle. Every function may be called from
// any thread; none throws (constructors do) and none aborts: errors come back as Result.
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ir/stmt.h"
#include "ops/op.h"
#include "runtime/memory/tensor.h"

namespace gradloom {

enum class TargetKind : uint8_t {
  automatic,  // llvm where it is built in, else interpreter
  llvm,
  interpreter,  // the reference executor
  cuda,         // an NVIDIA GPU: CUDA text through NVRTC, launches through the driver, both found at run time
  cuda_host,    // the text of GPU kernels, compiled with the host's C++ compiler and run by the CPU: for tests
};

// When a bad index that a GPU finds is reported: at the next Runtime::synchronize, so that no call waits, or by the
// call itself, which then waits for its stream. On the CPU always by the call.
enum class CheckMode : uint8_t { deferred, sync };

// How one call is launched on a GPU.
struct LaunchOptions {
  void* stream = nullptr;  // a CUstream; it outlives the outputs made on it, whose memory goes back in its order
  CheckMode check = CheckMode::deferred;
};

// What a call does whose kernel is not there yet (run, run_into; compile always specialises).
enum class Policy : uint8_t {
  specialise,     // compiles the kernel for its shapes at once
  generic_first,  // the kernel that serves every shape of the rank answers; a shape that comes often gets its own in
                  // the background. The same bits.
};

// Runs fn(begin, end) over a partition of [0, n), on any threads; returns, or throws, only when every call of fn has
// returned. fn does not throw.
using ParallelFor = std::function<void(int64_t n, const std::function<void(int64_t begin, int64_t end)>& fn)>;

struct RuntimeOptions {
  TargetKind target = TargetKind::automatic;
  int threads = 0;  // 0: as many as this process may use: its affinity mask, at most its control groups' CPU quota
  ParallelFor parallel_for;                  // an embedder's pool instead of oneTBB's
  std::string isa = "host";                  // or a level such as "x86-64-v3", to mask what the host has
  int64_t cache_bytes = int64_t{256} << 20;  // compiled code kept in memory
  int64_t recycle_bytes = int64_t{1} << 30;  // output and scratch memory kept for reuse
  std::string
      dump_folder;  // every kernel that is built is written there as text; empty: GRADLOOM_DUMP's, if that is set
  int device = 0;   // of target cuda

  // Finished kernels on disk, so that another process compiles nothing. A folder of this user's own; empty:
  // GRADLOOM_CACHE_DIR, else gradloom in XDG_CACHE_HOME, else ~/.cache/gradloom; "off": none.
  std::string disk_cache;
  std::vector<std::string>
      disk_cache_read_only;  // folders that are looked into besides; empty: those of GRADLOOM_CACHE_READONLY
  int64_t disk_cache_bytes = int64_t{1} << 30;

  Policy policy = Policy::specialise;  // of the CPU: a GPU's kernels are always compiled for their shapes at once
  // generic_first:
  int specialise_after = 32;  // calls of a shape before it gets a kernel of its own
  int specialisations = 4;    // at most so many live ones for one any-shape kernel
  int compile_threads = 1;    // in the background
};

struct RunOptions {
  bool accumulate = false;  // add into the outputs given
  std::string strategy;     // empty: chosen by shape, and another where that one is refused; by name there is no other
  bool any_shape = false;   // the kernel that serves every shape of this rank
  // The weakest level that will do; absent: the target's own, run_to_run on a GPU (targets cuda and cuda-host),
  // sequential elsewhere.
  std::optional<Determinism> determinism;
  uint32_t outputs_wanted = ~0u;  // run, compile: bit o asks for output o (run_into: those whose tensors are present)
  LaunchOptions launch;           // of run and run_into; a handle is given them with each call
  std::optional<Policy> policy;   // instead of the runtime's; a GPU ignores both
};

// How an own loop nest is compiled.
struct KernelOptions {
  // A nest without loops of a GPU gets the target's default schedule; false: it runs as it is. A CPU has no default
  // schedule.
  bool default_schedule = true;
};

// Where a compilation's time went, in milliseconds.
struct CompileStages {
  double emit_ms = 0, optimize_ms = 0, codegen_ms = 0, link_ms = 0;
  CompileStages& operator+=(const CompileStages& more) {
    emit_ms += more.emit_ms, optimize_ms += more.optimize_ms, codegen_ms += more.codegen_ms, link_ms += more.link_ms;
    return *this;
  }
};

// What was done for a call: for tables and tests.
struct KernelReport {
  std::string op, strategy, target;
  Determinism determinism = Determinism::sequential;  // that the kernel keeps, never weaker than asked
  bool compiled = false;                              // by this very call
  bool from_disk = false;                             // its code was loaded, not compiled
  bool any_shape = false;                             // it serves every shape of the rank
  double build_ms = 0;                                // author, schedule, passes
  double compile_ms = 0;                              // LLVM
  CompileStages stages;                               // of compile_ms
  std::vector<std::string> schedule_trace;
};

struct Stats {
  int64_t hits = 0, misses = 0, compiles = 0, launches = 0, evictions = 0, entries = 0, code_bytes = 0;
  double compile_ms = 0;
  CompileStages stages;  // of compile_ms
  double build_ms = 0;   // author, schedule, passes
  double read_ms = 0;    // of files from the disk, with all checks
  double load_ms = 0;    // of code from the disk: linking it
  // Of the compiles and launches, those of the interpreter: all of them on target interpreter, those of ops of shapes
  // on a GPU.
  int64_t interpreted = 0, interpreter_launches = 0;

  // The disk. A miss in memory is a hit or a miss there; rejected: files that were torn, foreign or unreadable.
  int64_t disk_hits = 0, disk_misses = 0, disk_rejected = 0, disk_write_failures = 0, disk_evictions = 0,
          disk_bytes_read = 0, disk_bytes_written = 0;
  std::map<std::string, int64_t>
      disk_miss_parts;  // how often each part of the key differed from that of the nearest entry known
  std::vector<std::string> disk_recent_misses;  // the last of them, a line each

  // generic_first.
  int64_t generic_calls = 0;  // answered by an any-shape kernel
  int64_t specialised = 0;    // kernels that were swapped in
  int64_t specialise_refused =
      0;  // those that could not be compiled or checked, or differed: the any-shape kernel goes on
  int64_t live_specialisations = 0;

  // Strategies that the op chose and whose schedule or lowering was refused, so that the next one served (a line in the
  // log each): a fault of gradloom's that costs speed at most.
  int64_t strategies_refused = 0;
};

// A call's kernel without its data: saved by a job, given to `prewarm` by the next.
struct CallKey {
  struct Input {
    bool present = false;
    DType dtype = DType::f32;
    Dims dims, strides;
    std::string values;  // of a shape-like input, dense
  };
  std::string op;
  std::vector<Input> inputs;
  Attributes attributes;
  RunOptions options;  // with the strategy that was chosen
  uint32_t outputs_wanted = ~0u;
  int64_t output_alignment = 1;
};
std::string save_calls(std::span<const CallKey> calls);          // for a file
Result<std::vector<CallKey>> load_calls(std::string_view file);  // of what save_calls gave

struct PrewarmReport {
  int64_t ready = 0, compiled = 0, failed = 0;  // ready: in memory now
  std::string first_failure;
};

class Core;
class Runtime;

// A compiled op for one set of dtypes and shapes. Cheap to copy; keeps its code alive.
class Executable {
 public:
  Executable() = default;
  // Checks the arguments (dtypes, dims, strides, overlap, shape-like values) and launches. Outputs that are absent
  // tensors are not asked for, exactly as when compiled. Outputs of data-dependent size (BroadcastGradientArgs) keep
  // the dims given, the largest possible; what lies beyond the size found is unspecified. run_into tells the size.
  Result<std::monostate> operator()(std::span<const Tensor> inputs, std::span<const Tensor> outputs,
                                    const LaunchOptions& launch = {}) const;
  // The same, giving outputs of data-dependent size trimmed in place, as Runtime::run_into does. The next call takes
  // the untrimmed ones again.
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
  // each. A failed Check gives Error(out_of_range).
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

  // Outputs from the recycling allocator, in the op's output order; absent where not asked for.
  Result<std::vector<Tensor>> run(std::string_view op, std::span<const Tensor> inputs,
                                  const Attributes& attributes = {}, const RunOptions& options = {});
  // Outputs into the caller's dense memory; an absent tensor: not asked for. Outputs of data-dependent size
  // (BroadcastGradientArgs) give the tensors trimmed in place.
  Result<std::monostate> run_into(std::string_view op, std::span<const Tensor> inputs, std::span<Tensor> outputs,
                                  const Attributes& attributes = {}, const RunOptions& options = {});
  // A handle for hot loops; inputs' data other than shape-like ones is not read.
  Result<Executable> compile(std::string_view op, std::span<const Tensor> inputs, const Attributes& attributes = {},
                             const RunOptions& options = {});
  // The same with an op of the embedder's own, which must outlive the Runtime and its handles.
  Result<std::vector<Tensor>> run(const Op& op, std::span<const Tensor> inputs, const Attributes& attributes = {},
                                  const RunOptions& options = {});
  Result<std::monostate> run_into(const Op& op, std::span<const Tensor> inputs, std::span<Tensor> outputs,
                                  const Attributes& attributes = {}, const RunOptions& options = {});
  Result<Executable> compile(const Op& op, std::span<const Tensor> inputs, const Attributes& attributes = {},
                             const RunOptions& options = {});
  // An own loop nest: authored or scheduled; it is verified, lowered and compiled.
  Result<KernelExecutable> compile(const ir::Kernel& kernel, const KernelOptions& options = {});

  // A target cuda takes and gives tensors in its device's memory; shape-like inputs, and all of BroadcastGradientArgs,
  // are the host's. On a CPU these three do nothing: there is no device, a tensor is its own copy.
  int device() const;  // -1: host memory
  // Waits for the stream, then reports the first bad index that launches since the last call found (by any stream: one
  // that is still busy may be early).
  Result<std::monostate> synchronize(void* stream = nullptr);
  // A copy with the same dims and strides; both wait for the stream.
  Result<Tensor> to_device(const Tensor& tensor, void* stream = nullptr);
  Result<Tensor> to_host(const Tensor& tensor, void* stream = nullptr);

  // The last run or compile of this thread, if it was this Runtime's; else empty. Valid until the thread's next call of
  // this function.
  const KernelReport& last_report() const;
  Stats stats() const;
  void clear_cache();
  // The library ops' kernels that calls needed so far, and getting such kernels ready ahead of the calls.
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
