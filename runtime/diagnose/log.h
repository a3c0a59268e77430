#pragma once
// Writing to the log (gradloom/log.h has its level and its sink).
#include <fmt/format.h>

#include <atomic>

#include "gradloom/log.h"

namespace gradloom {

namespace detail {
inline constexpr uint8_t unread_log_level = 255;
extern std::atomic<uint8_t> current_log_level;
void write_log(LogLevel level, fmt::string_view format, fmt::format_args arguments) noexcept;
}  // namespace detail

inline bool logs(LogLevel level) {
  const uint8_t current = detail::current_log_level.load(std::memory_order_relaxed);
  return level != LogLevel::off &&
         level <= (current == detail::unread_log_level ? log_level() : static_cast<LogLevel>(current));
}

// Formats only what the level lets through. Never throws.
template <class... Arguments>
void log(LogLevel level, fmt::format_string<Arguments...> format, const Arguments&... arguments) noexcept {
  if (logs(level)) detail::write_log(level, format, fmt::make_format_args(arguments...));
}

}  // namespace gradloom
