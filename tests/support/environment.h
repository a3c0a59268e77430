#pragma once
// Environment variables that make a random test run longer, or from another seed.
#include <cstdint>
#include <cstdlib>

namespace gradloom {

inline int64_t environment(const char* name, int64_t otherwise) {
  const char* text = std::getenv(name);
  return text ? std::atoll(text) : otherwise;
}

}  // namespace gradloom
