// What the log says of compiles and of the caches; each fault once.
#include <sys/resource.h>

#include "tests/support/warm_cache.h"

namespace gradloom {
namespace {

using namespace testing;

bool has(const std::string& text, const std::string& part) { return text.find(part) != text.npos; }

class CompileLogTest : public WarmCacheTest {
 protected:
  CompileLogTest() {
    set_log_sink([this](LogLevel level, std::string_view message) {
      lines_.push_back(std::string(to_string(level)) + ": " + std::string(message));
    });
  }
  ~CompileLogTest() override { set_log_level(LogLevel::warn); }
  int with(const std::string& text) const {
    return static_cast<int>(
        std::count_if(lines_.begin(), lines_.end(), [&](const std::string& line) { return has(line, text); }));
  }
  std::vector<std::string> lines_;
};

TEST_F(CompileLogTest, InfoHasACompileALineWithItsTimeAndCacheOutcome) {
  set_log_level(LogLevel::info);
  {
    Runtime runtime(options());
    ASSERT_TRUE(right(runtime, 0) && right(runtime, 0));
  }
  ASSERT_EQ(lines_.size(), 1u);
  EXPECT_TRUE(lines_[0].starts_with("info: GatherGrad ")) << lines_[0];
  EXPECT_TRUE(has(lines_[0], ": compiled in ")) << lines_[0];
  EXPECT_TRUE(lines_[0].ends_with("memory cache: miss, disk cache: miss")) << lines_[0];
  Runtime warm(options());
  ASSERT_TRUE(right(warm, 0));
  ASSERT_EQ(lines_.size(), 2u);
  EXPECT_TRUE(has(lines_[1], ": loaded in ") && lines_[1].ends_with("disk cache: hit")) << lines_[1];
  RuntimeOptions off = options();
  off.disk_cache = "off";
  Runtime cold(off);
  ASSERT_TRUE(right(cold, 0));
  EXPECT_TRUE(lines_.back().ends_with("disk cache: off")) << lines_.back();
}

TEST_F(CompileLogTest, DebugSaysWhy) {
  set_log_level(LogLevel::debug);
  RuntimeOptions small = options();
  small.cache_bytes = 8 << 10;
  Runtime runtime(small);
  for (int k = 0; k < 6; ++k) ASSERT_TRUE(right(runtime, k));
  EXPECT_EQ(with("info: GatherGrad"), 6);
  EXPECT_EQ(with("debug: GatherGrad: strategy "), 6);
  EXPECT_EQ(with("the first of its op"), 1);
  EXPECT_EQ(with("disk cache: miss, differing from the nearest entry in: GatherGrad"), 6);
  EXPECT_EQ(with(": dims"), 5);  // the part of the key that differs
  EXPECT_EQ(with("is written: "), 12);
  EXPECT_GE(with("is evicted"), 1);
}

TEST_F(CompileLogTest, AMisspeltLevelIsReportedWhenARuntimeIsMade) {
  setenv("GRADLOOM_LOG", "inof", 1);
  detail::current_log_level = detail::unread_log_level;
  const Runtime one(options()), two(options());
  unsetenv("GRADLOOM_LOG");
  EXPECT_EQ(with("GRADLOOM_LOG is \"inof\""), 1);
  EXPECT_EQ(lines_.size(), 1u);
}

TEST_F(CompileLogTest, ADamagedFileIsCountedAndReportedOnce) {
  {
    Runtime runtime(options());
    ASSERT_TRUE(right(runtime, 0));
  }
  for (const char* kind : {"k-", "i-"}) {
    const std::string file = files(kind)[0], whole = bytes_of(file);
    put_bytes(file, whole.substr(0, whole.size() / 2));
    lines_.clear();
    Runtime runtime(options());
    ASSERT_TRUE(right(runtime, 0));
    EXPECT_EQ(runtime.stats().disk_rejected, 1) << kind;
    EXPECT_EQ(lines_.size(), 1u) << kind;
    EXPECT_EQ(with("it should hold"), 1) << kind;
  }
}

TEST_F(CompileLogTest, NoDescriptorLeftIsReportedOnce) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "the undefined-behaviour sanitizer reads memory through a pipe";
#endif
  EXPECT_EQ(in_child([&]() -> int {
              Runtime runtime(options());
              lines_.clear();
              rlimit none{.rlim_cur = 0, .rlim_max = 1024};
              setrlimit(RLIMIT_NOFILE, &none);
              for (int k = 0; k < 3; ++k)
                if (!right(runtime, k)) return 1;
              if (with("warn: ") != 2) return 2;  // one of reading, one of writing
              return with("is not read") == 1 && with("is not written") == 1 && runtime.stats().disk_rejected == 0 ? 0
                                                                                                                   : 3;
            }),
            0);
}

}  // namespace
}  // namespace gradloom
