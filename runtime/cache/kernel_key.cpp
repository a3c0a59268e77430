#include "runtime/cache/kernel_key.h"

#include <algorithm>
#include <cstring>

namespace gradloom {

void KernelKey::add(uint64_t word) {
  if (size_ == capacity)
    throw Error(ErrorCode::unsupported, "the names of an op and its strategy are too long for a kernel's key");
  words_[size_++] = word;
  hash_ = (hash_ ^ word) * 0x9e3779b97f4a7c15u;
  hash_ ^= hash_ >> 29;
}

void KernelKey::add(std::string_view text) {
  add(text.size());
  for (size_t i = 0; i < text.size(); i += 8) {
    uint64_t word = 0;
    std::memcpy(&word, text.data() + i, std::min<size_t>(8, text.size() - i));
    add(word);
  }
}

// The level is the plan's: the call's own or the target's default, and sequential where the op has nothing weaker. The
// words decode one way only: every part of varying length follows its length. The target and the number of threads are
// the cache's own: one a runtime.
KernelKey::KernelKey(const Op& op, const Plan& plan, std::string_view strategy, const RunOptions& options,
                     uint32_t outputs_wanted, int64_t output_alignment) {
  add(reinterpret_cast<uintptr_t>(&op));  // an embedder's op may share a name with another's
  add(op.schema().name);
  add(strategy);
  const bool any_shape = options.any_shape && serves_any_shape(plan);
  add(static_cast<uint64_t>(any_shape) | static_cast<uint64_t>(options.accumulate) << 1 |
      static_cast<uint64_t>(plan.determinism) << 2 | static_cast<uint64_t>(output_alignment) << 8 |
      static_cast<uint64_t>(outputs_wanted) << 32);
  add(plan.key.size());
  for (int64_t word : plan.key) add(static_cast<uint64_t>(word));
  for (const View& view : plan.views) {
    const bool dense = is_dense(view.dims, view.strides);
    add(static_cast<uint64_t>(view.output) | static_cast<uint64_t>(dense) << 1 |
        static_cast<uint64_t>(view.dtype) << 2 | static_cast<uint64_t>(view.index) << 8 |
        static_cast<uint64_t>(view.dims.size()) << 32);
    if (any_shape) {
      if (!dense) add(static_cast<uint64_t>(stride_class(view)));
      continue;
    }
    for (int64_t dim : view.dims) add(static_cast<uint64_t>(dim));
    if (dense) continue;
    for (int64_t stride : view.strides) add(static_cast<uint64_t>(stride));
  }
  hash_ *= 0xff51afd7ed558ccdu;
  hash_ ^= hash_ >> 32;
}

}  // namespace gradloom
