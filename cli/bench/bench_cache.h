#pragma once
// What the kernel cache costs a job: memory over many compiles, waits for a kernel, calls from several threads, the
// first call of a warm process.
#include <cstdint>

namespace gradloom::cli {

// Each prints a verdict beside its table and returns exit code 1 when a goal is missed.

// Compiles and evicts so many kernels, with the process's memory at every twentieth.
int bench_churn(int64_t cycles, bool json);
// generic_first on 500 shapes: how long a call waits beyond its shape's own warm time.
int bench_stall(bool json);
// Calls of cached kernels a second: one thread, two, and two processes, which is what the machine has to give.
int bench_throughput(double seconds, bool json);
// Processes one after the other on a cache that holds what they call: the first call of each, by stage.
int bench_warm(int processes, bool json);
// What such a process does: prints its times as one JSON object.
int warm_process();

}  // namespace gradloom::cli
