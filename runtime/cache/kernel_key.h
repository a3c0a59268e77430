#pragma once
// What tells kernels apart: everything that can change their code, as flat words with their hash. Building one
// allocates nothing.
#include <cstdint>
#include <span>
#include <string_view>

#include "ops/op.h"
#include "runtime/options.h"

namespace gradloom {

class KernelKey {
 public:
  KernelKey(const Op& op, const Plan& plan, std::string_view strategy, const RunOptions& options,
            uint32_t outputs_wanted, int64_t output_alignment);

  std::span<const uint64_t> words() const { return {words_, static_cast<size_t>(size_)}; }
  uint64_t hash() const { return hash_; }

 private:
  void add(uint64_t word);
  void add(std::string_view text);

  // Enough for any plan: 16 views of 33 words, 64 words of the op's own, the names.
  static constexpr int capacity = 720;
  uint64_t words_[capacity];  // uninitialised beyond size_
  int size_ = 0;
  uint64_t hash_ = 0;
};

// The alignment classes of operands: outputs at cache lines (and on a GPU inputs at vectors of 16 bytes), or any
// address.
inline constexpr int64_t aligned_outputs = 64, any_outputs = 1;

}  // namespace gradloom
