#pragma once
// The machine description that schedules use. Numbers, not names: a schedule never tests for a vendor.
#include <cstdint>
#include <string>

#pragma GCC visibility push(default)
namespace gradloom {

// How far the summation order is fixed, strongest first. sequential: the authored order, the same bits everywhere.
// run_to_run: the same bits for any run, launch and number of threads. relaxed: any order.
enum class Determinism : uint8_t { sequential, run_to_run, relaxed };

}  // namespace gradloom
namespace gradloom::ir {

inline constexpr int64_t line_bytes = 64;  // of every cache

struct Target {
  std::string name = "generic";  // for messages and keys: an ISA level such as "x86-64-v3", "x86-64-v4"
  int vector_bytes = 16;         // the widest vector register worth using
  int vector_registers = 16;
  bool hardware_scatter = false;  // vector gathers and scatters are instructions (AVX-512)
  bool fast_scatter = false;      // gather, add and scatter of a vector is faster than one lane at a time
  bool streaming_stores = true;   // stores that bypass the caches
  int64_t l1_bytes = 32 << 10, l2_bytes = 1 << 20;  // a core's own caches
  int64_t last_level_bytes = 32 << 20;              // the cache before memory, which cores share
  int threads = 1;                                  // minimum number of tasks of a parallel loop

  // A GPU: schedules bind loops to its grids, threads, warps and lanes instead of making them parallel or vector.
  bool gpu = false;
  int multiprocessors = 132;
  bool cooperative = true;          // whether the blocks of a launch can synchronise (grid-wide barrier)
  int block_threads = 256;          // default threads per block
  int64_t shared_bytes = 99 << 10;  // per block, at most
  bool matrix_units =
      false;  // for f16 and bf16 with sums in f32 (ForKind::matrix_unit), where the order of such sums is free

  int lanes(int element_bytes) const { return vector_bytes / element_bytes; }
};

}  // namespace gradloom::ir

#pragma GCC visibility pop
