#pragma once
// The demo's calls that the benchmark lacks: the GRU, forward and backward, and a kernel that is no op.
#include "cli/bench/bench_probe.h"
#include "cli/demo/demo_table.h"

namespace gradloom::cli {

void gru_rows(const GruCase& c, Runtime& runtime, ProbeTeam& team, Peers& peers, double seconds, DemoTable& table);
// dx = dy * d/dx (x * logistic(x)), the gradient of SiLU, over n elements.
void own_kernel_row(int64_t n, Runtime& runtime, Peers& peers, double seconds, DemoTable& table);

}  // namespace gradloom::cli
