#pragma once
// One line a message, to stderr or to the embedder's sink, for what goes wrong without failing a call. The level is
// GRADLOOM_LOG's (off, error, warn, info, debug; warn when it is not set), read at first use. Every function may be
// called from any thread.
#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>

#pragma GCC visibility push(default)
namespace gradloom {

enum class LogLevel : uint8_t { off, error, warn, info, debug };

const char* to_string(LogLevel level);
std::optional<LogLevel> log_level_from_string(std::string_view name);

LogLevel log_level();
void set_log_level(LogLevel level);

// Receives every message that the level lets through, printable and without its newline; calls do not overlap. It may
// throw (the message is then lost) and it may log (that goes to stderr), but it must not set the sink. An empty
// function restores stderr, as "gradloom warn: message". When this returns, no call of the old sink is still running.
using LogSink = std::function<void(LogLevel level, std::string_view message)>;
void set_log_sink(LogSink sink);

}  // namespace gradloom

#pragma GCC visibility pop
