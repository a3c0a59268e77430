#pragma once
// What a kernel for a GPU will do, read off its lowered nest: bytes and steps of each launch, without a GPU. Loops
// whose length is data are taken at their mean: offsets of a list whose values run to M over N entries leave M / N for
// each.
#include <vector>

#include "ir/stmt.h"

namespace gradloom::cli {

// Of one grid loop, all its launches together.
struct GpuPrediction {
  double accessed_bytes = 0;  // every access to global memory
  // No more of a buffer than it holds, for reading and for writing, in each launch: what passes if the caches serve
  // every repeat and nothing lasts from one launch to the next.
  double moved_bytes = 0;
  double steps =
      0;  // dependent ones: statements that one thread runs one after the other, those of loops as often as they run
};

// In the order of the kernel's grid loops, as emit_cuda numbers its functions.
std::vector<GpuPrediction> predict_gpu(const ir::Kernel& lowered);

}  // namespace gradloom::cli
