#pragma once
// What the library logs while an object of this lives.
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "gradloom/log.h"

namespace gradloom::testing {

class LogLines {
 public:
  explicit LogLines(LogLevel level) : before_(log_level()) {
    set_log_level(level);
    set_log_sink([this](LogLevel, std::string_view message) {
      const std::lock_guard lock(mutex_);
      lines_.emplace_back(message);
    });
  }
  ~LogLines() {
    set_log_sink({});
    set_log_level(before_);
  }
  LogLines(const LogLines&) = delete;
  LogLines& operator=(const LogLines&) = delete;

  std::vector<std::string> take() {
    const std::lock_guard lock(mutex_);
    return std::exchange(lines_, {});
  }

 private:
  const LogLevel before_;
  std::mutex mutex_;
  std::vector<std::string> lines_;
};

}  // namespace gradloom::testing
