#pragma once
// One line a message, to stderr or to the embedder's sink, for what goes wrong without failing a call. The level is
// GRADLOOM_LOG's (off, error, warn, info, debug; warn when it is not set), read at first use. Every function may be
// called from any thread.
#include <fmt/format.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>

namespace gradloom {

enum class LogLevel : uint8_t { off, error, warn, info, debug };

const char* to_string(LogLevel level);
std::optional<LogLevel> log_level_from_string(std::string_view name);

LogLevel log_level();
void set_log_level(LogLevel level);

// Gets every message that the level lets through, printable and without its end of line; calls do not overlap. It may
// throw (the message is then lost) and it may log (that goes to stderr), but not set the sink. An empty function:
// stderr again, as "gradloom warn: message". No call of the old sink goes on once this returns.
using LogSink = std::function<void(LogLevel level, std::string_view message)>;
void set_log_sink(LogSink sink);

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
