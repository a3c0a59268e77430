#pragma once
// Random values within what a kernel declares: the same for a seed on every target and build.
#include "cli/nest_call.h"

namespace gradloom::nest {

inline constexpr int64_t most_drawn_bytes = int64_t{1} << 25;  // of all buffers, where a scalar is drawn

// Scalars that are not given are drawn one by one, uniformly from the values of their range that are nearest to 0: 65
// of them, from 0 on for one that a dim or stride mentions. Where the buffers then take over 32 MiB, or have no values
// that keep the facts, all are drawn again, every eighth time from half as many. Throws Error(invalid_argument) when
// nothing fits.
Call draw(const ir::Kernel& kernel, std::span<const std::optional<int64_t>> scalars, uint64_t seed);

}  // namespace gradloom::nest
