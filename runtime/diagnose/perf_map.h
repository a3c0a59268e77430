#pragma once
// Names of compiled functions for profilers such as perf: with GRADLOOM_PERF_MAP=1 each kernel that is compiled or
// loaded adds lines "address bytes name", in hexadecimal, to /tmp/perf-<pid>.map, where perf looks for the names of
// code that no file holds.
#include <span>

#include "codegen/llvm/compiler.h"

namespace gradloom {

// What fails is a line in the log.
void add_to_perf_map(std::span<const codegen::CodeSymbol> functions) noexcept;

}  // namespace gradloom
