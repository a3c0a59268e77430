#pragma once
// Random programs over the whole language of ir/README.md, as a user might write them: arithmetic that wraps, scalars
// near +-2^63, contradictions, dead code, guards of mixed lanes, loops from anywhere. What a program does is defined:
// indices are in range where they are used, what is read was written, facts hold. The same seed gives the same program
// and data (with one compiler: it chooses the order in which operands are drawn).
#include <cstdint>
#include <functional>
#include <vector>

#include "gradloom/stmt.h"

namespace gradloom::ir::testing {

struct RandomProgram {
  Kernel kernel;                              // verifies as Stage::scheduled
  std::vector<std::vector<uint8_t>> buffers;  // first contents, one a kernel buffer
  std::vector<size_t> origins;                // the byte of element [0, ..., 0] in it
  std::vector<int64_t> scalars;
};

struct ProgramShape {
  int statements = 24;                               // about so many
  bool vectors = true;                               // vector expressions, and loops that are not serial
  std::function<void(const Kernel&)> before_verify;  // sees each kernel that is about to be verified
};

// Throws Error only where no program of the seed verifies after many tries.
RandomProgram random_program(uint64_t seed, const ProgramShape& shape = {});

}  // namespace gradloom::ir::testing
