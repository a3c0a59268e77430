#include "runtime/diagnose/log.h"

#include <fmt/ranges.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <string>

#include "gradloom/error.h"
#include "support/fork.h"
#include "support/lasting.h"
#include "support/no_cancel.h"

namespace gradloom {
namespace {

constexpr std::array<const char*, 5> names{"off", "error", "warn", "info", "debug"};

void to_stderr(LogLevel level, std::string_view message) {
  const std::string line = fmt::format("gradloom {}: {}\n", to_string(level), message);
  std::fwrite(line.data(), 1, line.size(), stderr);  // a single write: lines of several threads do not interleave
}

struct Sink {
  Mutex mutex;
  std::shared_ptr<const LogSink> function;
};
constinit Lasting<Sink> lasting_sink;

std::shared_ptr<const LogSink> current_sink() {
  Sink& sink = *lasting_sink;
  std::lock_guard lock(sink.mutex);
  return sink.function;
}

// Whose turn it is to call the sink. A sink is the host's code, and may wait for what a forking thread has: a fork does
// not wait for it, and the child begins with a turn of its own.
struct Turn {
  const uint32_t generation = fork_generation();
  std::mutex mutex;
};
class Turns {
 public:
  ~Turns() { delete now_.load(); }
  std::mutex& mutex() {
    Turn* now = now_.load(std::memory_order_acquire);
    while (!now || now->generation != fork_generation()) {
      auto fresh = std::make_unique<Turn>();
      if (now_.compare_exchange_strong(now, fresh.get())) return fresh.release()->mutex;
    }
    return now->mutex;
  }

 private:
  std::atomic<Turn*> now_{nullptr};
};
constinit Lasting<Turns> turns;

thread_local constinit bool in_sink = false;

}  // namespace

namespace detail {

std::atomic<uint8_t> current_log_level{unread_log_level};

void write_log(LogLevel level, fmt::string_view format, fmt::format_args arguments) noexcept {
  const NoCancel no_cancel;
  try {
    const std::string message = printable(fmt::vformat(format, arguments));
    if (in_sink) return to_stderr(level, message);
    std::lock_guard lock(turns->mutex());
    const std::shared_ptr<const LogSink> sink = current_sink();
    if (!sink) return to_stderr(level, message);
    struct Inside {
      Inside() { in_sink = true; }
      ~Inside() { in_sink = false; }
    } inside;
    (*sink)(level, message);
  } catch (...) {  // a message is not worth a failed call
  }
}

}  // namespace detail

const char* to_string(LogLevel level) { return names[static_cast<size_t>(level)]; }

std::optional<LogLevel> log_level_from_string(std::string_view name) {
  for (size_t i = 0; i < names.size(); ++i)
    if (name == names[i]) return static_cast<LogLevel>(i);
  return std::nullopt;
}

LogLevel log_level() {
  uint8_t current = detail::current_log_level.load(std::memory_order_relaxed);
  if (current != detail::unread_log_level) return static_cast<LogLevel>(current);
  const char* text = std::getenv("GRADLOOM_LOG");
  const std::optional<LogLevel> wanted = text ? log_level_from_string(text) : LogLevel::warn;
  // A level set by set_log_level in the meantime takes precedence.
  const bool mine = detail::current_log_level.compare_exchange_strong(
      current, static_cast<uint8_t>(wanted.value_or(LogLevel::warn)), std::memory_order_relaxed);
  if (mine && !wanted) log(LogLevel::warn, "GRADLOOM_LOG is \"{}\", allowed are {}", text, fmt::join(names, ", "));
  return mine ? wanted.value_or(LogLevel::warn) : static_cast<LogLevel>(current);
}

void set_log_level(LogLevel level) {
  detail::current_log_level.store(static_cast<uint8_t>(level), std::memory_order_relaxed);
}

void set_log_sink(LogSink function) {
  std::shared_ptr<const LogSink> next;
  if (function) next = std::make_shared<const LogSink>(std::move(function));
  std::lock_guard turn(turns->mutex());
  std::lock_guard lock(lasting_sink->mutex);
  lasting_sink->function.swap(next);
}

}  // namespace gradloom
