#pragma once
// A 128-bit hash of bytes, for file names and checksums. Not collision-resistant against an adversary: matches are
// confirmed by a full comparison.
#include <cstdint>
#include <string>
#include <string_view>

namespace gradloom {

struct Hash128 {
  uint64_t low = 0, high = 0;
  bool operator==(const Hash128&) const = default;
};

// MurmurHash3_x64_128. The same on every machine of the same byte order.
Hash128 hash128(std::string_view bytes, uint32_t seed = 0);
std::string to_hex(const Hash128& hash);  // 32 digits

}  // namespace gradloom
