#pragma once
// The schedule of a matrix product on a CPU: tile_product with tiles, panels and blocks for the target.
#include "gradloom/schedule.h"
#include "gradloom/target.h"

namespace gradloom::ir {

struct ProductHints {
  Loop pack_before = 0;               // as tile_product's
  bool parallel = true;               // whether rows or columns may go to threads
  int64_t m = 512, n = 512, k = 512;  // expected values of extents that are not constant
};
// Refuses what tile_product refuses.
void schedule_product(Schedule& schedule, Loop rows, const Target& target, const ProductHints& hints = {});

}  // namespace gradloom::ir
