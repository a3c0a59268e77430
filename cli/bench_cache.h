#pragma once
// What the kernel cache costs a job: memory over many compiles, waits for a kernel, calls from several threads.

namespace gradloom::cli {

// Compiles and evicts for `seconds`, with the process's memory at every tenth.
int bench_churn(double seconds, bool json);
// generic_first on 500 shapes: how long a call waits beyond its shape's own warm time.
int bench_stall(bool json);
// Calls of cached kernels a second: one thread, two, and two processes, which is what the machine has to give.
int bench_throughput(double seconds, bool json);

}  // namespace gradloom::cli
