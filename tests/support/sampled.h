#pragma once
// Sampling of long test lists in sanitizer builds: code under sanitizers is ten times slower, and checks paths, not
// every number.
#include <cstdlib>
#include <vector>

namespace gradloom {

// True for every call, and for about one call in `period` in sanitizer builds (all with GRADLOOM_ALL=1 in the
// environment). Scattered by a multiplicative hash: lists cycle through dtypes and targets, and a fixed stride would
// always select the same one.
inline bool sampled(size_t call, size_t period = 8) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return (call * 0x9e3779b97f4a7c15u >> 32) % period == 0 || std::getenv("GRADLOOM_ALL") != nullptr;
#else
  return (void)call, (void)period, true;
#endif
}

template <class T>
std::vector<T> sample(std::vector<T> all) {
  std::vector<T> kept;
  for (size_t i = 0; i < all.size(); ++i)
    if (sampled(i)) kept.push_back(std::move(all[i]));
  return kept;
}

}  // namespace gradloom
