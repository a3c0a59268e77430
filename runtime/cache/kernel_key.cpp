#include "runtime/cache/kernel_key.h"

#include <algorithm>
#include <cstring>

namespace gradloom {

void KernelKey::add(uint64_t word) {
  if (size_ == capacity)
    throw Error(ErrorCode::unsupported, "the names of an op and its strategy are too long for a kernel's key");
  words_[size_++] = word;
  mix(word);
}

void KernelKey::mix(uint64_t word) {
  hash_ = (hash_ ^ word) * 0x9e3779b97f4a7c15u;
  hash_ ^= hash_ >> 29;
}

void KernelKey::finish() {
  hash_ *= 0xff51afd7ed558ccdu;
  hash_ ^= hash_ >> 32;
}

// An injective encoding: numbers of known widths share a word, every part of variable length is preceded by its length.
struct KernelKey::Words {
  KernelKey& key;
  uint64_t word = 0;
  int used = 0;  // bits of it

  void flush() {
    if (used != 0) key.add(word);
    word = 0, used = 0;
  }
  void number(KeyPart, const char*, uint64_t value, int bits) {
    if (bits < 64 && value >> bits != 0) throw Error(ErrorCode::internal, "a field of a kernel's key is out of range");
    if (used + bits > 64) flush();
    word |= value << used;
    used += bits;
  }
  void text(KeyPart, std::string_view text) {
    number({}, "", text.size(), 32);
    flush();
    for (size_t i = 0; i < text.size(); i += 8) {
      uint64_t bytes = 0;
      std::memcpy(&bytes, text.data() + i, std::min<size_t>(8, text.size() - i));
      key.add(bytes);
    }
  }
  template <int N>
  void list(KeyPart, const InlineVector<int64_t, N>& values) {
    flush();
    for (const int64_t value : values) key.add(static_cast<uint64_t>(value));
  }
  void operand(const View& view) {
    number({}, "", view.output, 1);
    number({}, "", static_cast<uint64_t>(view.index), 8);
    number({}, "", static_cast<uint64_t>(view.dtype), 8);
  }
};

KernelKey::KernelKey(const PlannedCall& call, bool as_named) {
  add(reinterpret_cast<uintptr_t>(&call.op));  // an embedder's op may share a name with another's
  Words words{*this};
  visit_key(call, words);
  words.flush();
  if (as_named) add(as_named);
  finish();
}

// Begins with no op's address.
KernelKey::KernelKey(std::string_view nest, const KernelOptions& options) {
  std::vector<uint64_t> words(2 + (nest.size() + 7) / 8);
  words[0] = options.default_schedule;
  words[1] = nest.size();
  std::memcpy(words.data() + 2, nest.data(), nest.size());
  for (const uint64_t word : words) mix(word);
  finish();
  nest_ = std::make_shared<const std::vector<uint64_t>>(std::move(words));
}

}  // namespace gradloom
