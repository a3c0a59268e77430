#pragma once
// Schedule decisions that several ops share.
#include "gradloom/schedule.h"
#include "gradloom/target.h"

namespace gradloom {

// Below this traffic a call is not worth waking threads for.
inline constexpr int64_t parallel_bytes = 256 << 10;
inline bool worth_threads(int64_t bytes, const ir::Target& target) {
  return target.threads > 1 && bytes >= parallel_bytes;
}

// How many tasks a parallel loop should have at least: some are late, some rows are longer.
inline int64_t wanted_tasks(const ir::Target& target) { return int64_t{4} * target.threads; }

// Elements of a row that is shared out on its own: whole cache lines, for about as many tasks.
inline int64_t row_piece(int64_t extent, const ir::Target& target) {
  return (extent / wanted_tasks(target) + ir::line_bytes) / ir::line_bytes * ir::line_bytes;
}

// Vectorizes a loop over elements of this many bytes, with fewer lanes when it is known to be shorter than a vector; a
// loop of one element stays. `copies` vectors are unrolled where the loop is long enough. The loop over whole vectors,
// or the loop that stays, is returned.
ir::Schedule::Loop vectorize_elements(ir::Schedule& schedule, ir::Schedule::Loop loop, int element_bytes, int copies,
                                      const ir::Target& target);

// All of these loops, outermost first, each all that the one before holds, as one: fused from the outside in. The other
// way the one loop's indices are other divisions, of which other things are proved.
ir::Schedule::Loop fuse_all(ir::Schedule& schedule, const std::vector<ir::Schedule::Loop>& loops);

// Loops that hold no other loop, in order of appearance.
std::vector<ir::Schedule::Loop> innermost_loops(const ir::Schedule& schedule);

}  // namespace gradloom
