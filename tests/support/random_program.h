#pragma once
// Random programs over the whole language of ir/README.md, as a user might write them: wrapping arithmetic, scalars
// near +-2^63, contradictions, dead code, guards of mixed lanes, loops with arbitrary begins. A program's behaviour is
// defined: indices are in range where they are used, elements are written before they are read, facts hold. The same
// seed gives the same program and data (with one compiler: the evaluation order of operands, and so of the draws, is
// the compiler's).
#include <cstdint>
#include <functional>
#include <vector>

#include "gradloom/stmt.h"

namespace gradloom::ir::testing {

struct RandomProgram {
  Kernel kernel;                              // verifies as Stage::scheduled
  std::vector<std::vector<uint8_t>> buffers;  // initial contents, one per kernel buffer
  std::vector<size_t> origins;                // the byte offset of element [0, ..., 0] in it
  std::vector<int64_t> scalars;
};

struct ProgramShape {
  int statements = 24;                               // approximately
  bool vectors = true;                               // vector expressions, and loops that are not serial
  std::function<void(const Kernel&)> before_verify;  // called with each kernel before it is verified
};

// Throws Error only where no program of the seed verifies after many tries.
RandomProgram random_program(uint64_t seed, const ProgramShape& shape = {});

}  // namespace gradloom::ir::testing
