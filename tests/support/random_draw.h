#pragma once
// Draws from an engine that several parts of a generator share.
#include <cstdint>
#include <random>
#include <vector>

namespace gradloom::ir::testing {

class RandomDraw {
 protected:
  explicit RandomDraw(std::mt19937_64& random) : random_(random) {}
  int pick(int n) { return static_cast<int>(random_() % static_cast<uint64_t>(n)); }
  bool chance(int percent) { return pick(100) < percent; }
  template <class T>
  const T& any(const std::vector<T>& list) {
    return list[pick(static_cast<int>(list.size()))];
  }

  std::mt19937_64& random_;
};

}  // namespace gradloom::ir::testing
