// The cache's files: frames, keys, folders, eviction, and every failure that a disk knows. Real files, real processes.
#include "runtime/disk_cache.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <random>

#include "runtime/log.h"
#include "runtime/op_key.h"
#include "runtime/planned_call.h"
#include "tests/runtime_ops.h"
#include "tests/support/sampled.h"

namespace {
// The next read or write of this many bytes or more fails with this error: what no local disk does on demand.
int failing_read = 0, failing_write = 0;
}  // namespace

extern "C" ssize_t read(int fd, void* data, size_t bytes) {
  if (failing_read != 0) return errno = std::exchange(failing_read, 0), -1;
  return syscall(SYS_read, fd, data, bytes);
}
extern "C" ssize_t write(int fd, const void* data, size_t bytes) {
  if (failing_write != 0 && fd > 2) return errno = std::exchange(failing_write, 0), -1;
  return syscall(SYS_write, fd, data, bytes);
}

namespace gradloom {
namespace {

namespace fs = std::filesystem;

class DiskCacheTest : public ::testing::Test {
 protected:
  DiskCacheTest() {
    char name[] = "/tmp/gradloom_cache_XXXXXX";
    folder_ = mkdtemp(name);
    set_log_sink([this](LogLevel, std::string_view message) { log_ += std::string(message) + "\n"; });
  }
  ~DiskCacheTest() override {
    set_log_sink({});
    fs::remove_all(folder_);
  }
  DiskCacheOptions options(int64_t budget = int64_t{1} << 30) const { return {folder_ + "/cache", {}, budget}; }
  std::string path(const std::string& name) const { return folder_ + "/cache/" + name; }
  int lines() const { return static_cast<int>(std::count(log_.begin(), log_.end(), '\n')); }

  std::string folder_, log_;
};

std::string file_of(std::string_view text) { return cache_frame(CacheFile::calls, text); }

std::optional<std::string> read_text(DiskCache& cache, const std::string& name) {
  const auto file = cache.read(CacheFile::calls, name);
  return file ? std::optional(std::string(cache_body(CacheFile::calls, *file))) : std::nullopt;
}

std::string bytes_of(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}
void put_bytes(const std::string& path, const std::string& bytes) { std::ofstream(path, std::ios::binary) << bytes; }

// Runs `body` in a child of its own and gives its exit code.
int in_child(const std::function<int()>& body) {
  const pid_t child = fork();
  if (child == 0) _exit(body());
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

TEST(Hash, IsMurmur3) {
  // From the reference implementation's verification of x64_128: the hash of the hashes of 0, 01, 0102, ... with seeds 256 - length.
  std::string hashes;
  for (int length = 0; length < 256; ++length) {
    std::string key;
    for (int i = 0; i < length; ++i) key += static_cast<char>(i);
    const Hash128 hash = hash128(key, static_cast<uint32_t>(256 - length));
    hashes.append(reinterpret_cast<const char*>(&hash), sizeof hash);
  }
  EXPECT_EQ(static_cast<uint32_t>(hash128(hashes).low), 0x6384BA69u);
}

TEST_F(DiskCacheTest, KeepsFilesInAPrivateFolder) {
  DiskCache cache(options());
  EXPECT_EQ(read_text(cache, "a"), std::nullopt);
  EXPECT_EQ(cache.stats().rejected, 0);  // not there is no failure
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
  EXPECT_EQ(cache.list().size(), 1u);  // nothing unfinished
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
    first.write("a", file_of("shipped"));
    first.write("b", file_of("shipped"));
  }
  chmod((folder_ + "/shipped").c_str(), 0755);
  DiskCache cache({folder_ + "/cache", {folder_ + "/missing", folder_ + "/shipped"}, 1 << 20});
  EXPECT_EQ(read_text(cache, "a"), "shipped");
  cache.write("a", file_of("own"));
  EXPECT_EQ(read_text(cache, "a"), "own");
  EXPECT_EQ(read_text(cache, "b"), "shipped");
  put_bytes(path("b"), "torn");
  chmod(path("b").c_str(), 0600);
  EXPECT_EQ(read_text(cache, "b"), "shipped");
  EXPECT_EQ(cache.stats().rejected, 1);
  cache.prune(0);
  EXPECT_EQ(read_text(cache, "a"), "shipped");
  chmod((folder_ + "/shipped").c_str(), 0777);  // anyone may put code there
  EXPECT_FALSE(DiskCache({"", {folder_ + "/shipped"}, 0}).usable());
}

TEST_F(DiskCacheTest, EveryFlippedByteIsAMiss) {
  DiskCache cache(options());
  KernelRecord record{content_key("compiler", "+a,+b", "kernel k() {}\n"), "k", "cpu", std::string("code\0code", 9), 1.5};
  const std::string whole = encode(record);
  cache.write("k", whole);
  ASSERT_TRUE(cache.read(CacheFile::kernel, "k"));
  for (size_t i = 0; i < whole.size(); ++i) {
    for (const int flip : {1, 0x80, 0xff}) {
      std::string torn = whole;
      torn[i] = static_cast<char>(torn[i] ^ flip);
      put_bytes(path("k"), torn);
      ASSERT_FALSE(cache.read(CacheFile::kernel, "k")) << i;
    }
  }
  for (size_t length = 0; length < whole.size(); ++length) {
    put_bytes(path("k"), whole.substr(0, length));
    ASSERT_FALSE(cache.read(CacheFile::kernel, "k")) << length;
  }
  put_bytes(path("k"), whole + '\0');
  EXPECT_FALSE(cache.read(CacheFile::kernel, "k"));
  EXPECT_EQ(cache.stats().rejected, lines());
  put_bytes(path("k"), whole);
  EXPECT_TRUE(cache.read(CacheFile::kernel, "k"));
  EXPECT_FALSE(cache.read(CacheFile::index, "k"));
}

TEST_F(DiskCacheTest, WhatIsNoFileIsAMiss) {
  DiskCache cache(options());
  cache.write("a", file_of("one"));
  fs::create_directory(path("folder"));
  fs::create_symlink(path("a"), path("link"));
  ASSERT_EQ(mkfifo(path("pipe").c_str(), 0600), 0);
  for (const char* name : {"folder", "link", "pipe"}) EXPECT_EQ(read_text(cache, name), std::nullopt) << name;
  EXPECT_EQ(lines(), 3) << log_;
  cache.write("folder", file_of("one"));  // a file cannot replace it
  EXPECT_EQ(cache.stats().write_failures, 1);
  EXPECT_EQ(cache.list().size(), 1u);
}

TEST_F(DiskCacheTest, ErrorsOfTheDiskAreMisses) {
  DiskCache cache(options());
  cache.write("a", file_of("one"));
  for (const int error : {ESTALE, EIO}) {
    failing_read = error;
    EXPECT_EQ(read_text(cache, "a"), std::nullopt);
    EXPECT_EQ(read_text(cache, "a"), "one");
    failing_write = error;
    cache.write("b", file_of("two"));
    EXPECT_EQ(read_text(cache, "b"), std::nullopt);
    EXPECT_EQ(cache.list().size(), 1u);  // nothing is left of it
  }
  EXPECT_EQ(lines(), 4) << log_;
  failing_read = failing_write = EINTR;  // no failure at all
  EXPECT_EQ(read_text(cache, "a"), "one");
  cache.write("b", file_of("two"));
  EXPECT_EQ(read_text(cache, "b"), "two");
}

TEST_F(DiskCacheTest, AFullDiskIsToldOnce) {
  DiskCache cache(options());
  for (int i = 0; i < 10; ++i) {
    failing_write = ENOSPC;
    cache.write("a", file_of("one"));
  }
  EXPECT_EQ(cache.stats().write_failures, 10);
  EXPECT_EQ(lines(), 1) << log_;
  cache.write("a", file_of("one"));
  EXPECT_EQ(read_text(cache, "a"), "one");
}

TEST_F(DiskCacheTest, AFileLimitIsAFailedWrite) {
  EXPECT_EQ(in_child([&] {
              signal(SIGXFSZ, SIG_IGN);
              const rlimit limit{4096, 4096};
              setrlimit(RLIMIT_FSIZE, &limit);
              DiskCache cache(options());
              cache.write("large", file_of(std::string(100000, 'x')));
              cache.write("small", file_of("one"));
              return cache.stats().write_failures == 1 && !read_text(cache, "large") && read_text(cache, "small") == "one" && cache.list().size() == 1 ? 0 : 1;
            }),
            0);
}

TEST_F(DiskCacheTest, ARealFullDisk) {
  const int code = in_child([&] {
    if (unshare(CLONE_NEWNS) != 0 || mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) return 77;
    fs::create_directory(folder_ + "/small");
    if (mount("tmpfs", (folder_ + "/small").c_str(), "tmpfs", 0, "size=65536,mode=700") != 0) return 77;
    DiskCache cache({folder_ + "/small/cache", {}, 1 << 30});
    int kept = 0;
    for (int i = 0; i < 20; ++i) cache.write(std::to_string(i), file_of(std::string(10000, static_cast<char>('a' + i))));
    for (int i = 0; i < 20; ++i) {
      const auto text = read_text(cache, std::to_string(i));
      if (text && *text != std::string(10000, static_cast<char>('a' + i))) return 2;
      kept += text.has_value();
    }
    if (cache.stats().rejected != 0 || kept < 2 || kept > 6 || cache.stats().write_failures != 20 - kept) return 3;
    if (mount(nullptr, (folder_ + "/small").c_str(), nullptr, MS_REMOUNT | MS_RDONLY, nullptr) != 0) return 77;
    cache.write("0", file_of("other"));
    DiskCache read_only({folder_ + "/small/cache", {}, 1 << 30});  // what is there can be read
    return read_text(read_only, "0") == std::string(10000, 'a') ? 0 : 4;
  });
  if (code == 77) GTEST_SKIP() << "this user may not mount a small tmpfs; a file limit and failing writes stand for it";
  EXPECT_EQ(code, 0);
}

TEST_F(DiskCacheTest, AFolderThatVanishesIsMadeAgain) {
  DiskCache cache(options());
  cache.write("a", file_of("one"));
  fs::remove_all(folder_ + "/cache");
  EXPECT_EQ(read_text(cache, "a"), std::nullopt);
  cache.write("a", file_of("two"));
  EXPECT_EQ(read_text(cache, "a"), "two");
  fs::remove_all(folder_ + "/cache");
  put_bytes(folder_ + "/cache", "a file in its place");
  cache.write("a", file_of("three"));
  EXPECT_EQ(read_text(cache, "a"), std::nullopt);
  EXPECT_EQ(lines(), 1) << log_;
}

TEST_F(DiskCacheTest, EvictsTheLongestUnusedAndSweepsUnfinishedFiles) {
  DiskCache cache(options(100000));
  const auto age = [&](const std::string& name, int64_t seconds) {
    const timespec when{std::time(nullptr) - seconds, 0};
    const timespec times[2] = {when, when};
    utimensat(AT_FDCWD, path(name).c_str(), times, 0);
  };
  for (int i = 0; i < 9; ++i) {
    cache.write(std::to_string(i), file_of(std::string(10000, 'x')));
    age(std::to_string(i), 10000 - i);
  }
  EXPECT_TRUE(read_text(cache, "0"));  // used: young again
  put_bytes(path("tmp-1-1"), "left by a process that died");
  put_bytes(path("tmp-1-2"), "being written");
  age("tmp-1-1", 100000);
  cache.write("10", file_of(std::string(20000, 'x')));
  EXPECT_TRUE(read_text(cache, "0"));
  EXPECT_FALSE(read_text(cache, "1"));
  EXPECT_TRUE(read_text(cache, "8"));
  EXPECT_TRUE(read_text(cache, "10"));
  EXPECT_FALSE(fs::exists(path("tmp-1-1")));
  EXPECT_TRUE(fs::exists(path("tmp-1-2")));
  EXPECT_EQ(cache.stats().evictions, 3);
  cache.write("large", file_of(std::string(200000, 'x')));  // alone over the budget
  EXPECT_FALSE(read_text(cache, "large"));
  EXPECT_TRUE(read_text(cache, "10"));
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
      cache.write(name, file_of(std::string(10000, name[0])));
      const std::string other = std::to_string(random() % 100);
      const auto text = read_text(cache, other);
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

TEST_F(DiskCacheTest, KilledWritersLeaveWholeFiles) {
  std::mt19937 random(1);
  int found = 0;
  for (int round = 0; round < 200; ++round) {
    const pid_t child = fork();
    if (child == 0) {
      DiskCache cache(options(2000000));
      for (int i = 0;; ++i) cache.write(std::to_string(i % 7), file_of(std::string(50000 + i % 7, static_cast<char>('a' + i % 7))));
    }
    usleep(random() % 4000);
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    DiskCache cache(options(2000000));
    for (int i = 0; i < 7; ++i) {
      const auto text = read_text(cache, std::to_string(i));
      if (!text) continue;
      ++found;
      ASSERT_EQ(*text, std::string(50000 + i, static_cast<char>('a' + i)));
    }
    ASSERT_EQ(cache.stats().rejected, 0) << log_;
  }
  EXPECT_GT(found, 100);
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

TEST(Entries, AreReadAsWritten) {
  const IndexRecord index{"key", content_id("k"), {{ScalarSource::dim, 1, 2}, {ScalarSource::param, 0, 3}}, "Op", "direct", 2.5, {"split i", "vectorize"}};
  const IndexRecord again = decode_index(encode(index));
  EXPECT_EQ(again.key, index.key);
  EXPECT_EQ(again.content, index.content);
  ASSERT_EQ(again.sources.size(), 2u);
  EXPECT_EQ(again.sources[0].kind, ScalarSource::dim);
  EXPECT_EQ(again.sources[0].view, 1);
  EXPECT_EQ(again.sources[1].index, 3);
  EXPECT_EQ(again.schedule_trace, index.schedule_trace);
  const KernelRecord kernel{content_key("compiler", "+a,-b", "the\nir\ntext"), "name", "cpu", "code", 1};
  const KernelRecord kernel_again = decode_kernel(encode(kernel));
  EXPECT_EQ(kernel_again.key, kernel.key);
  EXPECT_EQ(kernel_again.code, "code");
  EXPECT_EQ(ir_of_content_key(kernel.key), "the\nir\ntext");
  EXPECT_EQ(features_of_content_key(kernel.key), "+a,-b");
}

// The texts of two plans are the same exactly when their words are.
TEST(OpKey, TellsApartWhatTheMemoryCacheTellsApart) {
  const testing::ScaleOp op;
  std::mt19937 random(7);
  struct Sample {
    std::vector<uint64_t> words;
    std::string text, file;
  };
  std::vector<Sample> samples;
  for (int i = 0; i < 1500; ++i) {
    Plan plan;
    for (int v = random() % 3; v >= 0; --v) {
      View view{.output = random() % 2 == 0, .index = static_cast<int>(random() % 2), .dtype = random() % 2 ? DType::f32 : DType::i64};
      for (int d = random() % 3; d > 0; --d) {
        view.dims.push_back(random() % 2 + 1);
        view.strides.push_back(random() % 3);
      }
      plan.views.push_back(view);
    }
    for (int k = random() % 2; k >= 0; --k) plan.key.push_back(random() % 2);
    const std::string strategy = random() % 2 ? "direct" : "two";
    const RunOptions options{.accumulate = random() % 2 == 0, .any_shape = random() % 2 == 0};
    const PlannedCall call{op, plan, strategy, options, static_cast<uint32_t>(random() % 2), random() % 2 ? aligned_outputs : any_outputs};
    const OpKey key(op, plan, strategy, options, call.outputs_wanted, call.output_alignment, "target", "toolchain");
    const KernelKey words = call.key();
    samples.push_back({{words.words().begin(), words.words().end()}, key.text(), key.file_name()});
    EXPECT_EQ(OpKey(key.text()).file_name(), key.file_name());
  }
  int same = 0;
  for (size_t a = 0; a < samples.size(); ++a) {
    for (size_t b = 0; b < a; ++b) {
      const bool equal = samples[a].words == samples[b].words;
      ASSERT_EQ(equal, samples[a].text == samples[b].text) << samples[a].text << samples[b].text;
      ASSERT_EQ(equal, samples[a].file == samples[b].file);
      same += equal;
    }
  }
  EXPECT_GT(same, 10);
}

TEST(OpKey, NamesWhatDiffersFromTheNearest) {
  const testing::ScaleOp op;
  const auto name = [&](int64_t n, const std::string& strategy, const char* target) {
    Plan plan;
    plan.views.push_back({.dims = {n}, .strides = {1}});
    const RunOptions options;
    return OpKey(op, plan, strategy, options, 1, 64, target, "toolchain").file_name();
  };
  const std::vector<std::string> there{name(5, "two", "v3"), name(6, "direct", "v4"), name(7, "direct", "v3"), "k-0", ".lock"};
  const auto differing = [&](const std::string& wanted) { return nearest_key(wanted, there).value().differing; };
  EXPECT_EQ(differing(name(8, "direct", "v3")), (std::vector{KeyPart::dims}));
  EXPECT_EQ(differing(name(6, "direct", "v3")).size(), 1u);
  EXPECT_EQ(differing(name(6, "direct", "v2")), (std::vector{KeyPart::target}));
  EXPECT_FALSE(nearest_key(name(8, "direct", "v3"), {}));
}

}  // namespace
}  // namespace gradloom
