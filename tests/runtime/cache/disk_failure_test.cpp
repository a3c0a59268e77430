// Every disk failure is a miss: damaged files, device errors, full disks, deleted folders, killed writers. Real files,
// real processes.
#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include <csignal>
#include <random>
#include <utility>

#include "tests/support/cache_folder.h"

namespace {
// The next read or write of this many bytes or more fails with this error, which a local disk does not produce on
// demand.
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

using namespace testing;
using DiskFailureTest = CacheFolderTest;

TEST_F(DiskFailureTest, EveryFlippedByteIsAMiss) {
  DiskCache cache(options());
  KernelRecord record{content_key("compiler", "+a,+b", "kernel k() {}\n"), "k", "cpu", std::string("code\0code", 9),
                      1.5};
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

TEST_F(DiskFailureTest, WhatIsNoFileIsAMiss) {
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

TEST_F(DiskFailureTest, ErrorsOfTheDiskAreMisses) {
  DiskCache cache(options());
  cache.write("a", file_of("one"));
  for (const int error : {ESTALE, EIO}) {
    failing_read = error;
    EXPECT_EQ(read_text(cache, "a"), std::nullopt);
    EXPECT_EQ(read_text(cache, "a"), "one");
    failing_write = error;
    cache.write("b", file_of("two"));
    EXPECT_EQ(read_text(cache, "b"), std::nullopt);
    EXPECT_EQ(cache.list().size(), 1u);  // no partial file remains
  }
  EXPECT_EQ(lines(), 4) << log_;
  failing_read = failing_write = EINTR;  // retried, not a failure
  EXPECT_EQ(read_text(cache, "a"), "one");
  cache.write("b", file_of("two"));
  EXPECT_EQ(read_text(cache, "b"), "two");
}

TEST_F(DiskFailureTest, AFullDiskIsToldOnce) {
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

TEST_F(DiskFailureTest, AFileLimitIsAFailedWrite) {
  EXPECT_EQ(in_child([&] {
              signal(SIGXFSZ, SIG_IGN);
              const rlimit limit{4096, 4096};
              setrlimit(RLIMIT_FSIZE, &limit);
              DiskCache cache(options());
              cache.write("large", file_of(std::string(100000, 'x')));
              cache.write("small", file_of("one"));
              return cache.stats().write_failures == 1 && !read_text(cache, "large") &&
                             read_text(cache, "small") == "one" && cache.list().size() == 1
                         ? 0
                         : 1;
            }),
            0);
}

TEST_F(DiskFailureTest, ARealFullDisk) {
  const int code = in_child([&] {
    if (unshare(CLONE_NEWNS) != 0 || mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) return 77;
    fs::create_directory(folder_ + "/small");
    if (mount("tmpfs", (folder_ + "/small").c_str(), "tmpfs", 0, "size=65536,mode=700") != 0) return 77;
    DiskCache cache({folder_ + "/small/cache", {}, 1 << 30});
    int kept = 0;
    for (int i = 0; i < 20; ++i)
      cache.write(std::to_string(i), file_of(std::string(10000, static_cast<char>('a' + i))));
    for (int i = 0; i < 20; ++i) {
      const auto text = read_text(cache, std::to_string(i));
      if (text && *text != std::string(10000, static_cast<char>('a' + i))) return 2;
      kept += text.has_value();
    }
    if (cache.stats().rejected != 0 || kept < 2 || kept > 6 || cache.stats().write_failures != 20 - kept) return 3;
    if (mount(nullptr, (folder_ + "/small").c_str(), nullptr, MS_REMOUNT | MS_RDONLY, nullptr) != 0) return 77;
    cache.write("0", file_of("other"));
    DiskCache read_only({folder_ + "/small/cache", {}, 1 << 30});  // existing entries can be read
    return read_text(read_only, "0") == std::string(10000, 'a') ? 0 : 4;
  });
  if (code == 77) GTEST_SKIP() << "this user may not mount a small tmpfs; a file limit and failing writes stand for it";
  EXPECT_EQ(code, 0);
}

TEST_F(DiskFailureTest, AFolderThatVanishesIsMadeAgain) {
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

TEST_F(DiskFailureTest, KilledWritersLeaveWholeFiles) {
  std::mt19937 random(1);
  int found = 0;
  for (int round = 0; round < 200; ++round) {
    const pid_t child = fork();
    if (child == 0) {
      DiskCache cache(options(2000000));
      for (int i = 0;; ++i)
        cache.write(std::to_string(i % 7), file_of(std::string(50000 + i % 7, static_cast<char>('a' + i % 7))));
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

}  // namespace
}  // namespace gradloom
