#pragma once
// What makes a random test run longer or shorter, or from another seed.
#include <cstdint>
#include <cstdlib>

namespace gradloom {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool sanitized = true;
#else
inline constexpr bool sanitized = false;
#endif

inline int64_t environment(const char* name, int64_t otherwise) {
  const char* text = std::getenv(name);
  return text ? std::atoll(text) : otherwise;
}

}  // namespace gradloom
