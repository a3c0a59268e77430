// MurmurHash3_x64_128 by Austin Appleby, who placed it in the public domain.
#include "support/hash.h"

#include <fmt/format.h>

#include <bit>
#include <cstring>

namespace gradloom {
namespace {

constexpr uint64_t c1 = 0x87c37b91114253d5u, c2 = 0x4cf5ad432745937fu;

uint64_t mix_low(uint64_t k) { return std::rotl(k * c1, 31) * c2; }
uint64_t mix_high(uint64_t k) { return std::rotl(k * c2, 33) * c1; }

uint64_t finish(uint64_t k) {
  k = (k ^ k >> 33) * 0xff51afd7ed558ccdu;
  k = (k ^ k >> 33) * 0xc4ceb9fe1a85ec53u;
  return k ^ k >> 33;
}

}  // namespace

Hash128 hash128(std::string_view bytes, uint32_t seed) {
  uint64_t low = seed, high = seed;
  size_t at = 0;
  for (; at + 16 <= bytes.size(); at += 16) {
    uint64_t k[2];
    std::memcpy(k, bytes.data() + at, 16);
    low = (std::rotl(low ^ mix_low(k[0]), 27) + high) * 5 + 0x52dce729;
    high = (std::rotl(high ^ mix_high(k[1]), 31) + low) * 5 + 0x38495ab5;
  }
  if (at < bytes.size()) {
    uint64_t k[2] = {0, 0};
    std::memcpy(k, bytes.data() + at, bytes.size() - at);
    high ^= mix_high(k[1]);
    low ^= mix_low(k[0]);
  }
  low ^= bytes.size();
  high ^= bytes.size();
  low += high;
  high += low;
  low = finish(low);
  high = finish(high);
  low += high;
  high += low;
  return {low, high};
}

std::string to_hex(const Hash128& hash) { return fmt::format("{:016x}{:016x}", hash.high, hash.low); }

}  // namespace gradloom
