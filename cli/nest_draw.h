#pragma once
// Random values within a kernel's declared facts: identical for a seed on every target and build.
#include "cli/nest_call.h"

namespace gradloom::nest {

inline constexpr int64_t most_drawn_bytes = int64_t{1} << 25;  // of all buffers together, where a scalar is drawn

// Scalars that are not given are drawn one by one, uniformly from the 65 values of their range nearest to 0; from 0 on
// for one that a dim or stride refers to. Where the buffers then exceed 32 MiB, or no values satisfy the facts, all are
// drawn again, every eighth time from half as many values. Throws Error(invalid_argument) when no draw fits.
Call draw(const ir::Kernel& kernel, std::span<const std::optional<int64_t>> scalars, uint64_t seed);

}  // namespace gradloom::nest
