#pragma once
// The targets of this build that need no GPU.
#include <vector>

#include "gradloom/runtime.h"

namespace gradloom {

inline std::vector<TargetKind> compiled_targets() {
  std::vector<TargetKind> all;
#ifdef GRADLOOM_WITH_LLVM
  all.push_back(TargetKind::llvm);
#endif
#ifdef GRADLOOM_WITH_CUDA
  all.push_back(TargetKind::cuda_host);
#endif
  return all;
}

inline std::vector<TargetKind> all_targets() {
  std::vector<TargetKind> all = compiled_targets();
  all.insert(all.begin(), TargetKind::interpreter);
  return all;
}

}  // namespace gradloom
