#pragma once
// The key of a kernel: everything that can affect its code, as flat words with their hash. Building one allocates
// nothing for an op.
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "runtime/planned_call.h"

namespace gradloom {

class KernelKey {
 public:
  // The target and the number of threads are fixed per cache: there is one per runtime. `as_named`: the kernel is to
  // have the call's strategy, where others like it may have another one by tuning.
  explicit KernelKey(const PlannedCall& call, bool as_named = false);
  // Of a nest of an embedder's own: its text is its identity.
  KernelKey(std::string_view nest, const KernelOptions& options);

  std::span<const uint64_t> words() const {
    return nest_ ? std::span<const uint64_t>(*nest_) : std::span(words_, static_cast<size_t>(size_));
  }
  uint64_t hash() const { return hash_; }

 private:
  struct Words;
  void add(uint64_t word);
  void mix(uint64_t word);
  void finish();

  // Enough for any plan: 16 views of 34 words, 64 words of the op's own, the names.
  static constexpr int capacity = 736;
  uint64_t words_[capacity];  // uninitialised beyond size_
  int size_ = 0;
  uint64_t hash_ = 0;
  std::shared_ptr<const std::vector<uint64_t>> nest_;  // the words of an embedder's nest, which may be many
};

}  // namespace gradloom
