#pragma once
// Integer arithmetic at planning time, for the tiling of a call; no kernel computes it.
#include <cstdint>

namespace gradloom {

// b > 0
constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
constexpr int64_t round_up(int64_t a, int64_t b) { return ceil_div(a, b) * b; }

}  // namespace gradloom
