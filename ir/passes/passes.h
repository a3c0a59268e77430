#pragma once
// The passes that turn a scheduled kernel into a lowered one. One file, one free function each; pipeline.cpp lists them
// in order.
#include <functional>

#include "gradloom/stmt.h"
#include "gradloom/target.h"

namespace gradloom::ir {

// Folds constants, identities and proved conditions; drops empty loops, dead branches and lets used nowhere. Any stage;
// keeps every bit.
Kernel simplify(const Kernel& kernel);
// Unroll loops -> copies. Requires: constant extents. Breaks: nothing.
Kernel unroll(const Kernel& kernel);
// Vector loops -> vector statements: the variable becomes a ramp, conditions become guards. Requires: constant extents,
// proved loops.
Kernel vectorize(const Kernel& kernel);
// Stores that fill interleaved places (ramps of one stride k, at base, base+1, ..., base+k-1) -> one dense store of
// shuffled lanes.
Kernel interleave_stores(const Kernel& kernel);

// Vector updates of scattered places -> one lane after another, places and values loaded as scalars, where all lanes'
// places are in range and need no wrapping. fast_scatter: updates of lanes that cannot meet stay vectors.
Kernel scalarize_scatters(const Kernel& kernel, bool fast_scatter);

// Register buffers with an index that is not constant -> ordinary ones. Gives: what Stage::lowered asks of register
// buffers.
Kernel demote_registers(const Kernel& kernel);

// For a kernel of a GPU (verify_gpu.h).
// Prefetches go.
Kernel drop_prefetches(const Kernel& kernel);
// The host part launches only: what else stands there becomes launches of one block, and what needs memory to be
// decided is decided in each launch.
Kernel outline_kernels(const Kernel& kernel);
// What blocks, warps and threads allocate goes to shared memory while a block has so many bytes of it, or to scratch;
// what is small stays.
Kernel place_buffers(const Kernel& kernel, int64_t shared_bytes);
// A tile's elements by pairs of neighbours in a row.
Kernel pair_fragments(const Kernel& kernel);
// Writes that the lanes of a lane loop may do to one element -> ordered ones.
Kernel order_lanes(const Kernel& kernel);
// Where lanes of a warp, threads of a block, and blocks of a cooperative loop wait for one another.
Kernel insert_barriers(const Kernel& kernel);

using PassTimes = std::vector<std::pair<std::string, double>>;  // milliseconds, in the order of the passes
struct LowerOptions {
  std::function<void(const std::string& pass, const Kernel& after)> dump;
  PassTimes* times = nullptr;
  bool fast_scatter = false;        // see scalarize_scatters
  bool gpu = false;                 // for a GPU even where no loop is bound to it
  int64_t shared_bytes = 99 << 10;  // of a block
};
inline LowerOptions lowering_for(const Target& target) {
  return {.fast_scatter = target.fast_scatter, .gpu = target.gpu, .shared_bytes = target.shared_bytes};
}
// All of the above, in order; those for a GPU where a loop is bound to one or the options say so. The result verifies
// as Stage::lowered. Debug builds verify after every pass.
Kernel lower(const Kernel& scheduled, const LowerOptions& options = {});

}  // namespace gradloom::ir
