#pragma once
namespace gradloom {
class Runtime;
}
namespace gradloom::cli {

// Times gather gradients that add little to a large gradient, beside a plain loop over the indices. The verdict: within
// twice that loop's time, and the bits of one.
int bench_accumulate(Runtime& runtime, double seconds, bool json);

}  // namespace gradloom::cli
