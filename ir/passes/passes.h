#pragma once
// The passes that turn a scheduled kernel into a lowered one. One file, one free function each; pipeline.cpp lists them
// in order.
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gradloom/stmt.h"
#include "gradloom/target.h"

namespace gradloom::ir {

// Makes loops of the reductions that the schedule left as they are (expand_reduction.h). Gives: no reduction. Requires
// and breaks: nothing; of a kernel without one, nothing changes.
Kernel expand_reductions(const Kernel& kernel);
// Folds constants, identities and proved conditions; removes empty loops, dead branches and unused lets. Any stage;
// preserves every bit.
Kernel simplify(const Kernel& kernel);
// Fully unrolls unroll loops. Requires: constant extents. Breaks: nothing.
Kernel unroll(const Kernel& kernel);
// Widens vector loops to vector statements: the variable becomes a ramp, conditions become guards. Requires: constant
// extents, proved loops.
Kernel vectorize(const Kernel& kernel);
// Merges interleaved stores (ramps of one stride k, at base, base+1, ..., base+k-1) into one dense store of shuffled
// lanes.
Kernel interleave_stores(const Kernel& kernel);
// Replaces the vector loads of the columns of a square tile by loads of its rows, transposed in registers.
Kernel transpose_loads(const Kernel& kernel);

// Scalarizes scatter-updates lane by lane, with indices and values loaded as scalars, where all lanes' indices are in
// range and need no wrapping. fast_scatter: updates whose lanes cannot conflict stay vectors.
Kernel scalarize_scatters(const Kernel& kernel, bool fast_scatter);

// Demotes register buffers with a non-constant index to ordinary ones. Gives: Stage::lowered's rules for register
// buffers.
Kernel demote_registers(const Kernel& kernel);

// For a kernel of a GPU (verify_gpu.h).
// Removes prefetches.
Kernel drop_prefetches(const Kernel& kernel);
// Reduces the host part to launches: all other statements become launches of one block, and decisions that need memory
// are made in each launch.
Kernel outline_kernels(const Kernel& kernel);
// Assigns memory spaces to allocations of blocks, warps and threads: small ones stay, others go to shared memory up to
// its per-block limit, then to scratch.
Kernel place_buffers(const Kernel& kernel, int64_t shared_bytes);
// Processes a tile's elements in pairs of adjacent columns.
Kernel pair_fragments(const Kernel& kernel);
// Makes writes of a lane loop that may conflict across lanes ordered.
Kernel order_lanes(const Kernel& kernel);
// Inserts barriers for the lanes of a warp, the threads of a block, and the blocks of a cooperative loop.
Kernel insert_barriers(const Kernel& kernel);

struct LowerOptions;
// One pass of lower(), by name, on a kernel that satisfies what the pass requires. Throws Error(invalid_argument) for
// another name.
Kernel run_pass(std::string_view name, const Kernel& kernel, const LowerOptions& options);

using PassTimes = std::vector<std::pair<std::string, double>>;  // milliseconds, in the order of the passes
struct LowerOptions {
  std::function<void(const std::string& pass, const Kernel& after)> dump;
  PassTimes* times = nullptr;
  bool fast_scatter = false;        // see scalarize_scatters
  bool gpu = false;                 // for a GPU even if no loop is bound to it
  int64_t shared_bytes = 99 << 10;  // per block
};
inline LowerOptions lowering_for(const Target& target) {
  return {.fast_scatter = target.fast_scatter, .gpu = target.gpu, .shared_bytes = target.shared_bytes};
}
// All of the above, in order; those for a GPU where a loop is bound to one or the options say so. The result verifies
// as Stage::lowered. Debug builds verify after every pass.
Kernel lower(const Kernel& scheduled, const LowerOptions& options = {});

// The kernel's text after a pass of lower(), and the names of all that ran: the second run of a pass is "simplify:2".
// No text where none has that name. What lower() throws after that pass is no error.
struct PassText {
  std::optional<std::string> text;
  std::vector<std::string> names;
};
PassText text_after(const Kernel& scheduled, LowerOptions options, std::string_view pass);

}  // namespace gradloom::ir
