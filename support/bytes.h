#pragma once
// Serialises values to bytes and back, for this library's own files. The byte order is the machine's: the files' keys
// distinguish machines.
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "gradloom/error.h"

namespace gradloom {

class ByteWriter {
 public:
  template <class T>
  requires std::is_trivially_copyable_v<T>
  void value(const T& value) { bytes_.append(reinterpret_cast<const char*>(&value), sizeof value); }
  void text(std::string_view text) {
    value(static_cast<uint64_t>(text.size()));
    bytes_.append(text);
  }
  std::string take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

// Throws Error(invalid_argument) where the bytes end too early.
class ByteReader {
 public:
  explicit ByteReader(std::string_view bytes) : rest_(bytes) {}

  template <class T>
  requires std::is_trivially_copyable_v<T> T value() {
    T value;
    std::memcpy(&value, take(sizeof value).data(), sizeof value);
    return value;
  }
  std::string_view text() { return take(value<uint64_t>()); }
  // A count of elements of at least `least_bytes` each.
  size_t count(size_t least_bytes) {
    const auto n = value<uint64_t>();
    if (n > rest_.size() / least_bytes) throw Error(ErrorCode::invalid_argument, "a count is larger than what follows");
    return static_cast<size_t>(n);
  }
  void end() const {
    if (!rest_.empty()) throw Error(ErrorCode::invalid_argument, "bytes follow the end");
  }

 private:
  std::string_view take(uint64_t n) {
    if (n > rest_.size()) throw Error(ErrorCode::invalid_argument, "the bytes end too early");
    const std::string_view taken = rest_.substr(0, n);
    rest_.remove_prefix(n);
    return taken;
  }

  std::string_view rest_;
};

}  // namespace gradloom
