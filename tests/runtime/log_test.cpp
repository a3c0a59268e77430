// The log: levels, sinks, the characters of a line, threads.
#include "runtime/diagnose/log.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <stdexcept>
#include <thread>
#include <vector>

namespace gradloom {
namespace {

struct Line {
  LogLevel level;
  std::string message;
};

class LogTest : public testing::Test {
 protected:
  LogTest() {
    set_log_level(LogLevel::debug);
    set_log_sink([this](LogLevel level, std::string_view message) { lines_.push_back({level, std::string(message)}); });
  }
  ~LogTest() override {
    set_log_sink({});
    set_log_level(LogLevel::warn);
    unsetenv("GRADLOOM_LOG");
  }
  // As if nothing had been logged in this process.
  void unread() { detail::current_log_level = detail::unread_log_level; }

  std::vector<Line> lines_;
};

TEST_F(LogTest, LevelsLetThroughThemselvesAndWhatIsWorse) {
  for (const LogLevel allowed : {LogLevel::off, LogLevel::error, LogLevel::warn, LogLevel::info, LogLevel::debug}) {
    set_log_level(allowed);
    lines_.clear();
    for (const LogLevel level : {LogLevel::error, LogLevel::warn, LogLevel::info, LogLevel::debug}) log(level, "{}", 1);
    ASSERT_EQ(lines_.size(), static_cast<size_t>(allowed));
    for (size_t i = 0; i < lines_.size(); ++i) EXPECT_EQ(lines_[i].level, static_cast<LogLevel>(i + 1));
  }
}

TEST_F(LogTest, TheEnvironmentGivesTheLevel) {
  unsetenv("GRADLOOM_LOG");
  unread();
  EXPECT_EQ(log_level(), LogLevel::warn);
  for (const char* name : {"off", "error", "warn", "info", "debug"}) {
    setenv("GRADLOOM_LOG", name, 1);
    unread();
    EXPECT_STREQ(to_string(log_level()), name);
  }
  EXPECT_TRUE(lines_.empty());
  setenv("GRADLOOM_LOG", "verbose", 1);
  unread();
  EXPECT_TRUE(logs(LogLevel::warn));
  EXPECT_FALSE(logs(LogLevel::info));
  ASSERT_EQ(lines_.size(), 1u);
  EXPECT_EQ(lines_[0].message, "GRADLOOM_LOG is \"verbose\", allowed are off, error, warn, info, debug");
}

TEST_F(LogTest, AMessageIsOnePrintableLine) {
  log(LogLevel::warn, "a{}b", "\n\t\r\x1b[31m\x7f");
  log(LogLevel::warn, "{}", std::string_view("nul\0.", 5));
  log(LogLevel::warn, "{}", "gr\xc3\xbc\xc3\x9f \xe2\x82\xac \xf0\x9f\x98\x80");  // valid UTF-8 stays
  log(LogLevel::warn, "{}", "\xff \xc3 \xe2\x82 \xc0\xaf \xc2\x85");
  ASSERT_EQ(lines_.size(), 4u);
  EXPECT_EQ(lines_[0].message, "a\\n\\t\\r\\x1b[31m\\x7fb");
  EXPECT_EQ(lines_[1].message, "nul\\x00.");
  EXPECT_EQ(lines_[2].message, "gr\xc3\xbc\xc3\x9f \xe2\x82\xac \xf0\x9f\x98\x80");
  EXPECT_EQ(lines_[3].message, "\\xff \\xc3 \\xe2\\x82 \\xc0\\xaf \\xc2\\x85");
}

TEST_F(LogTest, WithoutASinkLinesGoToStandardError) {
  set_log_sink({});
  testing::internal::CaptureStderr();
  log(LogLevel::error, "no {}", "space");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "gradloom error: no space\n");
}

TEST_F(LogTest, ASinkMayThrowAndMayLog) {
  set_log_sink([](LogLevel, std::string_view) { throw std::runtime_error("sink"); });
  log(LogLevel::warn, "lost");
  set_log_sink([](LogLevel, std::string_view message) { log(LogLevel::info, "inner {}", message); });
  testing::internal::CaptureStderr();
  log(LogLevel::warn, "outer");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "gradloom info: inner outer\n");
}

TEST_F(LogTest, NothingIsFormattedBelowTheLevel) {
  set_log_level(LogLevel::warn);
  log(LogLevel::debug, fmt::runtime("{} {}"), 1);  // an argument is missing: formatting would throw
  set_log_level(LogLevel::debug);
  log(LogLevel::debug, fmt::runtime("{} {}"), 1);  // and does, without an effect on the caller
  EXPECT_TRUE(lines_.empty());
}

TEST_F(LogTest, ManyThreadsLogWhileTheSinkChanges) {
  constexpr int threads = 4, messages = 500;
  std::atomic<int> first{0}, second{0};
  const auto count = [](std::atomic<int>& counter) {
    return [&counter](LogLevel, std::string_view message) { counter += message == "whole message 7"; };
  };
  set_log_sink(count(first));
  std::vector<std::thread> pool;
  for (int t = 0; t < threads; ++t)
    pool.emplace_back([] {
      for (int i = 0; i < messages; ++i) log(LogLevel::warn, "whole {} {}", "message", 7);
    });
  for (int i = 0; i < 50; ++i) set_log_sink(i % 2 ? count(first) : count(second));
  for (std::thread& thread : pool) thread.join();
  EXPECT_EQ(first + second, threads * messages);
}

}  // namespace
}  // namespace gradloom
