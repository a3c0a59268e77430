#pragma once
// Schedule decisions that several ops share.
#include "gradloom/schedule.h"
#include "gradloom/target.h"

#pragma GCC visibility push(default)
namespace gradloom {

// Below this memory traffic, waking threads costs more than it gains.
inline constexpr int64_t parallel_bytes = 256 << 10;
inline bool worth_threads(int64_t bytes, const ir::Target& target) {
  return target.threads > 1 && bytes >= parallel_bytes;
}

// The minimum number of tasks of a parallel loop, for load balance: some threads start late, some rows are longer.
inline int64_t wanted_tasks(const ir::Target& target) { return int64_t{4} * target.threads; }

// Chunk size, in elements, of a row that is distributed over threads: whole cache lines, for about as many tasks.
inline int64_t row_piece(int64_t extent, const ir::Target& target) {
  return (extent / wanted_tasks(target) + ir::line_bytes) / ir::line_bytes * ir::line_bytes;
}

// Vectorizes a loop over elements of this many bytes, with fewer lanes when it is known to be shorter than a vector; a
// loop of one element is left alone. `copies` vectors are unrolled where the loop is long enough. Returns the loop over
// whole vectors, or the loop left alone.
ir::Schedule::Loop vectorize_elements(ir::Schedule& schedule, ir::Schedule::Loop loop, int element_bytes, int copies,
                                      const ir::Target& target);

// Fuses these perfectly nested loops, given outermost first, from the outside in. The opposite order yields other
// divisions as indices, about which other facts can be proved.
ir::Schedule::Loop fuse_all(ir::Schedule& schedule, const std::vector<ir::Schedule::Loop>& loops);

// Innermost loops, in order of appearance.
std::vector<ir::Schedule::Loop> innermost_loops(const ir::Schedule& schedule);

}  // namespace gradloom

#pragma GCC visibility pop
