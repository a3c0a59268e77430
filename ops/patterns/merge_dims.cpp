#include "ops/patterns/merge_dims.h"

namespace gradloom {
namespace {

bool in_line(const LoopDim& outer, const LoopDim& inner) {
  return outer.extent == 1 ||
         (outer.stride_a == inner.stride_a * inner.extent && outer.stride_b == inner.stride_b * inner.extent);
}

}  // namespace

LoopDims merge_dims(const LoopDims& dims) {
  LoopDims merged;
  for (const LoopDim& d : dims) {
    if (d.full == 1 && d.extent == 1) continue;
    if (!merged.empty() && merged.back().role == d.role && d.full == d.extent && in_line(merged.back(), d)) {
      LoopDim& outer = merged.back();
      outer = {.role = d.role,
               .full = outer.full * d.full,
               .extent = outer.extent * d.extent,
               .stride_a = d.stride_a,
               .stride_b = d.stride_b};
    } else {
      merged.push_back(d);
    }
  }
  return merged;
}

}  // namespace gradloom
