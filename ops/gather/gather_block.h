#pragma once
// The strategies "strip" and "row" on a GPU: a block holds the sums of a few neighbouring columns (or rows, when the
// axis is last) of dX in shared memory. Its threads bring a tile of indices and values; then each column is one warp's,
// which adds 32 at a time, in index order, while the threads wait for the next tile.
#include "ops/gather/gather_common.h"

namespace gradloom {

// How a call is cut; columns of 0: the sums do not fit into shared memory.
struct GatherBlock {
  int64_t columns = 0;   // a block
  int64_t tile = 0;      // indices a column that are brought at a time, a multiple of 32
  int64_t each() const;  // of a tile's elements, that a thread brings
  int64_t threads() const { return columns * tile / each(); }  // that bring them
};
GatherBlock gather_block(const Plan& plan, const ir::Target& target);

void author_gather_block(KernelFrame& frame, const ir::Target& target);
void schedule_gather_block(ir::Schedule& schedule, const ir::Target& target);

}  // namespace gradloom
