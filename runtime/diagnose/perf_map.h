#pragma once
// Symbols of compiled functions for profilers such as perf: with GRADLOOM_PERF_MAP=1 each kernel that is compiled or
// loaded appends lines "address bytes name", in hexadecimal, to /tmp/perf-<pid>.map, where perf looks up JIT-compiled
// code.
#include <span>

#include "codegen/llvm/compiler.h"

namespace gradloom {

// A failure is logged.
void add_to_perf_map(std::span<const codegen::CodeSymbol> functions) noexcept;

}  // namespace gradloom
