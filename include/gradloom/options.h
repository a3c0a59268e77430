#pragma once
// What a runtime, a call and an own kernel may be given.
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "gradloom/op.h"

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

}  // namespace gradloom
