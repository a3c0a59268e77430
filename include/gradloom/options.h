#pragma once
// Options of a runtime, a call and a user's own kernel.
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gradloom/op.h"

#pragma GCC visibility push(default)
namespace gradloom {

enum class TargetKind : uint8_t {
  automatic,  // llvm where it is built in, else interpreter
  llvm,
  interpreter,  // the reference executor
  cuda,         // an NVIDIA GPU: CUDA text through NVRTC, launches through the driver, both found at run time
  cuda_host,    // CUDA text of GPU kernels, compiled with the host's C++ compiler and run on the CPU: for tests
};

// When an out-of-range index found on a GPU is reported: at the next Runtime::synchronize, so that no call blocks, or
// by the call itself, which then waits for its stream. CPU targets always report from the call.
enum class CheckMode : uint8_t { deferred, sync };

// Runs fn(begin, end) over a partition of [0, n), on any threads; returns, or throws, only after every call of fn has
// returned. fn does not throw.
using ParallelFor = std::function<void(int64_t n, const std::function<void(int64_t begin, int64_t end)>& fn)>;

// Returns dense memory, at any address, for an output of a run: the caller's, which outlives its use. Of an output
// whose size the kernel finds (ArgumentSchema::found_size) the dims are those found. Null: there is none, and the run
// fails.
using AllocateOutput = std::function<void*(std::string_view op, int output, DType dtype, const Dims& dims)>;

// How one call is run. Everything here may differ from call to call of one kernel.
struct LaunchOptions {
  // On a GPU:
  void* stream = nullptr;  // a CUstream; must outlive outputs made on it: their memory is freed in its order
  CheckMode check = CheckMode::deferred;
  // On a CPU: the pool of this call, instead of the runtime's. No result bit depends on it.
  ParallelFor parallel_for = {};
  // Of run: the memory of the outputs that it makes, instead of the recycling allocator's.
  AllocateOutput allocate = {};
};

// What a call does whose kernel is not in memory yet (run, run_into; compile always specialises).
enum class Policy : uint8_t {
  specialise,     // compiles the kernel for its shapes at once
  generic_first,  // the kernel that serves every shape of the rank answers; a shape that comes often gets its own in
                  // the background. The same bits.
};

// Whether a call's kernel is the one that measuring found to be fastest, instead of the one that the op's rules choose
// by shape (docs/tuning.md). Of target llvm; others ignore it. The same bits.
enum class Tuning : uint8_t {
  off,
  use,         // what the tuning log says, where it has an entry for the call and this machine
  background,  // and, under generic_first, a shape that gets its own kernel is measured in the background, once: what
               // is found is used and written to the log
};

struct RuntimeOptions {
  TargetKind target = TargetKind::automatic;
  int threads = 0;  // 0: as many as this process may use: its affinity mask, limited by its control groups' CPU quota
  ParallelFor parallel_for = {};             // an embedder's pool instead of the library's own threads
  std::string isa = "host";                  // or a level such as "x86-64-v3", to disable newer instructions
  int64_t cache_bytes = int64_t{256} << 20;  // compiled code kept in memory
  int64_t recycle_bytes = int64_t{1} << 30;  // output and scratch memory kept for reuse
  // Every kernel that is built is written there as text; empty: GRADLOOM_DUMP's, if that is set.
  std::string dump_folder = {};
  int device = 0;  // of target cuda

  // Compiled kernels on disk, so that another process need not compile. A folder owned by this user; empty:
  // GRADLOOM_CACHE_DIR, else gradloom in XDG_CACHE_HOME, else ~/.cache/gradloom; "off": none.
  std::string disk_cache = {};
  std::vector<std::string> disk_cache_read_only = {};  // folders also searched; empty: those of GRADLOOM_CACHE_READONLY
  int64_t disk_cache_bytes = int64_t{1} << 30;

  Policy policy = Policy::specialise;  // of the CPU: GPU kernels are always specialised at once
  // generic_first:
  int specialise_after = 32;  // calls of a shape before it gets a specialised kernel
  int specialisations = 4;    // live ones per any-shape kernel, at most
  int compile_threads = 1;    // in the background

  Tuning tuning = Tuning::off;
  // The tuning log's file; empty: GRADLOOM_TUNING_LOG, else tuning.log in the disk cache's folder, if there is one.
  std::string tuning_log = {};
};

struct RunOptions {
  bool accumulate = false;  // add into the outputs given
  // Empty: chosen by shape, falling back to another when refused; a named one has no fallback.
  std::string strategy = {};
  bool any_shape = false;  // the kernel that serves every shape of this rank
  // The weakest acceptable level; absent: the target's default, run_to_run on a GPU (targets cuda and cuda-host),
  // sequential elsewhere.
  std::optional<Determinism> determinism = {};
  uint32_t outputs_wanted = ~0u;  // run, compile: bit o requests output o (run_into: those whose tensors are present)
  LaunchOptions launch = {};      // of run and run_into; a handle takes them with each call
  std::optional<Policy> policy = {};  // instead of the runtime's; a GPU ignores both
};

// How a user's own loop nest is compiled.
struct KernelOptions {
  // A nest without a schedule (for a GPU: without GPU loops; for a CPU: all its loops are serial) gets the target's
  // default one, which keeps every bit; false: it is compiled as it is.
  bool default_schedule = true;
};

}  // namespace gradloom

#pragma GCC visibility pop
