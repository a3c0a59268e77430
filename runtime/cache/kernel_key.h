#pragma once
// The key of a kernel: everything that can affect its code, as flat words with their hash. Building one allocates
// nothing.
#include <cstdint>
#include <span>
#include <string_view>

#include "runtime/planned_call.h"

namespace gradloom {

class KernelKey {
 public:
  // The target and the number of threads are fixed per cache: there is one per runtime.
  explicit KernelKey(const PlannedCall& call);

  std::span<const uint64_t> words() const { return {words_, static_cast<size_t>(size_)}; }
  uint64_t hash() const { return hash_; }

 private:
  struct Words;
  void add(uint64_t word);

  // Enough for any plan: 16 views of 34 words, 64 words of the op's own, the names.
  static constexpr int capacity = 736;
  uint64_t words_[capacity];  // uninitialised beyond size_
  int size_ = 0;
  uint64_t hash_ = 0;
};

}  // namespace gradloom
