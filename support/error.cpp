#include "gradloom/error.h"

#include <fmt/format.h>

#include "support/lasting.h"

namespace gradloom {

const char* to_string(ErrorCode code) {
  switch (code) {
    case ErrorCode::invalid_argument:
      return "invalid_argument";
    case ErrorCode::out_of_range:
      return "out_of_range";
    case ErrorCode::unsupported:
      return "unsupported";
    case ErrorCode::resource_exhausted:
      return "resource_exhausted";
    case ErrorCode::compile_failed:
      return "compile_failed";
    case ErrorCode::device_error:
      return "device_error";
    case ErrorCode::internal:
      return "internal";
  }
  return "internal";
}

std::string printable(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size();) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const size_t length = byte < 0x80                   ? 1
                          : byte >= 0xc2 && byte < 0xe0 ? 2
                          : byte >= 0xe0 && byte < 0xf0 ? 3
                          : byte >= 0xf0 && byte < 0xf5 ? 4
                                                        : 0;
    bool whole = length > 0 && i + length <= text.size() && byte >= 0x20 && byte != 0x7f;
    for (size_t k = 1; whole && k < length; ++k) whole = (static_cast<unsigned char>(text[i + k]) & 0xc0) == 0x80;
    if (whole && length == 2 && byte == 0xc2)
      whole = static_cast<unsigned char>(text[i + 1]) >= 0xa0;  // the control characters of Latin-1
    if (whole) {
      out.append(text.substr(i, length));
      i += length;
    } else if (byte == '\n' || byte == '\t' || byte == '\r') {
      out += byte == '\n' ? "\\n" : byte == '\t' ? "\\t" : "\\r";
      ++i;
    } else {
      out += fmt::format("\\x{:02x}", byte);
      ++i;
    }
  }
  return out;
}

Error out_of_memory() {
  static constinit Lasting<const Error> error;
  return error.get([] { return Error(ErrorCode::resource_exhausted, "out of memory"); });
}

}  // namespace gradloom
