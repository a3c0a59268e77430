#pragma once
// A temporary folder for a test, with the library's log lines; file contents as bytes, bodies run in child processes.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>

#include "runtime/cache/disk_cache.h"
#include "runtime/diagnose/log.h"

namespace gradloom::testing {

namespace fs = std::filesystem;

class CacheFolderTest : public ::testing::Test {
 protected:
  CacheFolderTest() {
    char name[] = "/tmp/gradloom_cache_XXXXXX";
    folder_ = mkdtemp(name);
    set_log_sink([this](LogLevel, std::string_view message) { log_ += std::string(message) + "\n"; });
  }
  ~CacheFolderTest() override {
    set_log_sink({});
    fs::remove_all(folder_);
  }
  DiskCacheOptions options(int64_t budget = int64_t{1} << 30) const { return {folder_ + "/cache", {}, budget}; }
  std::string path(const std::string& name) const { return folder_ + "/cache/" + name; }
  int lines() const { return static_cast<int>(std::count(log_.begin(), log_.end(), '\n')); }

  std::string folder_, log_;
};

inline std::string file_of(std::string_view text) { return cache_frame(CacheFile::calls, text); }

inline std::optional<std::string> read_text(DiskCache& cache, const std::string& name) {
  const auto file = cache.read(CacheFile::calls, name);
  return file ? std::optional(std::string(cache_body(CacheFile::calls, *file))) : std::nullopt;
}

inline std::string bytes_of(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}
inline void put_bytes(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

// Runs `body` in a child process and returns its exit code.
inline int in_child(const std::function<int()>& body) {
  const pid_t child = fork();
  if (child == 0) _exit(body());
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace gradloom::testing
