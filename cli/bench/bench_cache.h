#pragma once
// Costs of the kernel cache to a job: memory over many compiles, stalls for a kernel, throughput of several threads,
// the first call of a warm process.
#include <cstdint>

namespace gradloom::cli {

// Each prints a verdict next to its table and returns exit code 1 when a goal is missed.

// Compiles and evicts this many kernels and samples the process's memory twenty times.
int bench_churn(int64_t cycles, bool json);
// generic_first on 500 shapes: how long a call stalls beyond its shape's own warm time.
int bench_stall(bool json);
// Calls of cached kernels per second: one thread, two threads, and two processes (the machine's upper bound).
int bench_throughput(double seconds, bool json);
// Consecutive processes on a cache that contains every kernel they call: the first call of each, by stage.
int bench_warm(int processes, bool json);
// The body of such a process: prints its times as one JSON object.
int warm_process();

}  // namespace gradloom::cli
