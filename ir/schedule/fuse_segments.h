#pragma once
// Internal to schedules: the fusion of a loop over segments with the loop over a segment's places.
#include "ir/schedule/site.h"

namespace gradloom::ir {

struct FusedSegments {
  Stmt nest;
  Loop loop = 0;  // 0: the loops are none of this kind
};
// for b { for k in offsets[b] .. offsets[b + 1] { body } }, where offsets is nondecreasing: k takes all values of one
// range in order, so that one loop over k does the same, with a table of the b of each k.
FusedSegments fuse_segments(const Site& site, int64_t inner);

}  // namespace gradloom::ir
