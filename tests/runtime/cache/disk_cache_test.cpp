// The cache's folder: permissions, tiers, eviction, concurrent processes. Real files, real processes.
#include "runtime/cache/disk_cache.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <ctime>
#include <random>

#include "support/hash.h"
#include "tests/support/cache_folder.h"

namespace gradloom {
namespace {

using namespace testing;
using DiskCacheTest = CacheFolderTest;

// A name in the cache's format: no other file is evicted.
std::string own(const std::string& text) { return "k-" + to_hex(hash128(text)); }

TEST_F(DiskCacheTest, KeepsFilesInAPrivateFolder) {
  DiskCache cache(options());
  EXPECT_EQ(read_text(cache, "a"), std::nullopt);
  EXPECT_EQ(cache.stats().rejected, 0);  // a missing file is not a failure
  cache.write("a", file_of("one"));
  cache.write("a", file_of("two"));
  EXPECT_EQ(read_text(cache, "a"), "two");
  DiskCache other(options());
  EXPECT_EQ(read_text(other, "a"), "two");
  struct stat s;
  ASSERT_EQ(stat(path("").c_str(), &s), 0);
  EXPECT_EQ(s.st_mode & 0777, 0700u);
  ASSERT_EQ(stat(path("a").c_str(), &s), 0);
  EXPECT_EQ(s.st_mode & 0777, 0600u);
  EXPECT_EQ(cache.list().size(), 1u);  // no partial files
  EXPECT_EQ(log_, "");
}

TEST_F(DiskCacheTest, AFolderThatOthersMayEnterIsNotUsed) {
  fs::create_directory(folder_ + "/cache");
  chmod(path("").c_str(), 0755);
  DiskCache cache(options());
  EXPECT_FALSE(cache.usable());
  cache.write("a", file_of("one"));
  EXPECT_EQ(read_text(cache, "a"), std::nullopt);
  EXPECT_TRUE(fs::is_empty(path("")));
  EXPECT_EQ(lines(), 1) << log_;
  EXPECT_NE(log_.find("its mode is 755"), std::string::npos) << log_;
}

TEST_F(DiskCacheTest, AnotherUsersFolderIsNotUsed) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can give a folder away";
  fs::create_directory(folder_ + "/cache");
  chmod(path("").c_str(), 0700);
  ASSERT_EQ(chown(path("").c_str(), 12345, 12345), 0);
  EXPECT_FALSE(DiskCache(options()).usable());
  EXPECT_NE(log_.find("it belongs to user 12345"), std::string::npos) << log_;
  log_.clear();
  EXPECT_FALSE(DiskCache({"", {path("")}, 0}).usable());  // nor as a read-only one
  EXPECT_EQ(lines(), 1) << log_;
}

TEST_F(DiskCacheTest, AFolderThatCannotBeMadeIsALineInTheLog) {
  DiskCache cache({"/proc/self/no/cache", {}, 1 << 20});
  EXPECT_FALSE(cache.usable());
  cache.write("a", file_of("one"));
  EXPECT_EQ(read_text(cache, "a"), std::nullopt);
  EXPECT_EQ(lines(), 1) << log_;
}

TEST_F(DiskCacheTest, ReadsASecondTierAndNeverWritesIt) {
  {
    DiskCache first({folder_ + "/shipped", {}, 1 << 20});
    first.write(own("a"), file_of("shipped"));
    first.write(own("b"), file_of("shipped"));
  }
  chmod((folder_ + "/shipped").c_str(), 0755);
  DiskCache cache({folder_ + "/cache", {folder_ + "/missing", folder_ + "/shipped"}, 1 << 20});
  EXPECT_EQ(read_text(cache, own("a")), "shipped");
  cache.write(own("a"), file_of("own"));
  EXPECT_EQ(read_text(cache, own("a")), "own");
  EXPECT_EQ(read_text(cache, own("b")), "shipped");
  put_bytes(path(own("b")), "torn");
  chmod(path(own("b")).c_str(), 0600);
  EXPECT_EQ(read_text(cache, own("b")), "shipped");
  EXPECT_EQ(cache.stats().rejected, 1);
  cache.prune(0);
  EXPECT_EQ(read_text(cache, own("a")), "shipped");
  chmod((folder_ + "/shipped").c_str(), 0777);  // anyone may put code there
  EXPECT_FALSE(DiskCache({"", {folder_ + "/shipped"}, 0}).usable());
}

TEST_F(DiskCacheTest, EvictsTheLongestUnusedAndSweepsUnfinishedFiles) {
  DiskCache cache(options(100000));
  const auto age = [&](const std::string& name, int64_t seconds) {
    const timespec when{std::time(nullptr) - seconds, 0};
    const timespec times[2] = {when, when};
    utimensat(AT_FDCWD, path(name).c_str(), times, 0);
  };
  for (int i = 0; i < 9; ++i) {
    cache.write(own(std::to_string(i)), file_of(std::string(10000, 'x')));
    age(own(std::to_string(i)), 10000 - i);
  }
  EXPECT_TRUE(read_text(cache, own("0")));  // a use refreshes its age
  put_bytes(path("tmp-1-1"), "left by a process that died");
  put_bytes(path("tmp-1-2"), "being written");
  age("tmp-1-1", 100000);
  cache.write(own("10"), file_of(std::string(20000, 'x')));
  EXPECT_TRUE(read_text(cache, own("0")));
  EXPECT_FALSE(read_text(cache, own("1")));
  EXPECT_TRUE(read_text(cache, own("8")));
  EXPECT_TRUE(read_text(cache, own("10")));
  EXPECT_FALSE(fs::exists(path("tmp-1-1")));
  EXPECT_TRUE(fs::exists(path("tmp-1-2")));
  EXPECT_EQ(cache.stats().evictions, 3);
  cache.write(own("large"), file_of(std::string(200000, 'x')));  // exceeds the budget by itself
  EXPECT_FALSE(read_text(cache, own("large")));
  EXPECT_TRUE(read_text(cache, own("10")));
}

TEST_F(DiskCacheTest, EvictsOnlyItsOwnFiles) {
  DiskCache cache(options());
  const std::vector<std::string> others{"thesis.tex", "k-pop.mp3", "i-am", "tmp-notes", "k-0123456789abcdef"};
  for (const std::string& name : others) put_bytes(path(name), "a user's");
  cache.write(own("a"), file_of("one"));
  EXPECT_EQ(cache.prune(0), "");
  EXPECT_FALSE(read_text(cache, own("a")));
  EXPECT_EQ(cache.stats().evictions, 1);
  for (const std::string& name : others) EXPECT_TRUE(fs::exists(path(name))) << name;
}

TEST_F(DiskCacheTest, TellsWhyItWasNotPruned) {
  DiskCache cache(options());
  cache.write(own("a"), file_of("one"));
  const int lock = open(path(".lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  ASSERT_EQ(flock(lock, LOCK_EX), 0);
  EXPECT_EQ(cache.prune(0), "another process is at it");
  close(lock);
  EXPECT_EQ(cache.prune(0), "");
  EXPECT_EQ(DiskCache({"", {}, 0}).prune(0), "there is no folder to write to");
}

TEST_F(DiskCacheTest, ProcessesThatEvictAtOnceStayWithinTheBudget) {
  constexpr int processes = 8;
  constexpr int64_t budget = 400000;
  std::vector<pid_t> children;
  for (int p = 0; p < processes; ++p) {
    children.push_back(fork());
    if (children.back() != 0) continue;
    DiskCache cache(options(budget));
    std::mt19937 random(p);
    int wrong = 0;
    for (int i = 0; i < 200; ++i) {
      const std::string name = std::to_string(random() % 100);
      cache.write(own(name), file_of(std::string(10000, name[0])));
      const std::string other = std::to_string(random() % 100);
      const auto text = read_text(cache, own(other));
      wrong += text && *text != std::string(10000, other[0]);
    }
    _exit(wrong + static_cast<int>(cache.stats().rejected + cache.stats().write_failures) > 0);
  }
  for (const pid_t child : children) {
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
  }
  int64_t total = 0;
  DiskCache cache(options(budget));
  for (const DiskFile& file : cache.list()) {
    EXPECT_TRUE(read_text(cache, file.name)) << file.name;
    total += file.bytes;
  }
  EXPECT_LE(total, budget + processes * (budget / 32 + 10100));
}

TEST(CacheFolder, ComesFromTheEnvironment) {
  EXPECT_EQ(in_child([] {
              setenv("GRADLOOM_CACHE_DIR", "/a", 1);
              setenv("XDG_CACHE_HOME", "/b", 1);
              setenv("HOME", "/c", 1);
              if (default_cache_folder() != "/a") return 1;
              setenv("GRADLOOM_CACHE_DIR", "off", 1);
              if (!default_cache_folder().empty()) return 2;
              unsetenv("GRADLOOM_CACHE_DIR");
              if (default_cache_folder() != "/b/gradloom") return 3;
              setenv("XDG_CACHE_HOME", "relative", 1);
              if (default_cache_folder() != "/c/.cache/gradloom") return 4;
              unsetenv("HOME");
              if (!default_cache_folder().empty()) return 5;
              setenv("GRADLOOM_CACHE_READONLY", "/x::/y", 1);
              return default_read_only_folders() == std::vector<std::string>{"/x", "/y"} ? 0 : 6;
            }),
            0);
}

// Root with another user's HOME makes no folder there, which that user could not use.
TEST_F(DiskCacheTest, IsNotMadeInAnotherUsersHome) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can give a folder away";
  const std::string home = folder_ + "/home";
  fs::create_directory(home);
  ASSERT_EQ(chown(home.c_str(), 12345, 12345), 0);
  for (const char* variable : {"HOME", "XDG_CACHE_HOME"})
    EXPECT_EQ(in_child([&] {
                unsetenv("GRADLOOM_CACHE_DIR");
                unsetenv("XDG_CACHE_HOME");
                setenv(variable, home.c_str(), 1);
                const std::string folder = default_cache_folder();
                return folder.empty() && log_.find("belongs to user 12345, not 0") != log_.npos && lines() == 1 ? 0 : 1;
              }),
              0)
        << variable;
  EXPECT_TRUE(fs::is_empty(home));
}

}  // namespace
}  // namespace gradloom
