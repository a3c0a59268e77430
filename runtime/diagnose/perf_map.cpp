#include "runtime/diagnose/perf_map.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <mutex>
#include <string>
#include <system_error>

#include "runtime/diagnose/log.h"

namespace gradloom {
namespace {

struct PerfMap {
  std::mutex mutex;
  std::string lines;  // of all functions so far: a forked child, which inherits them, writes its own file
  pid_t process = 0;  // the process whose file contains them
};

bool wanted() {
  static const bool on = [] {
    const char* const value = std::getenv("GRADLOOM_PERF_MAP");
    const std::string_view text = value ? value : "";
    return !text.empty() && text != "0" && text != "off";
  }();
  return on;
}

// 0, or errno. Appends: other compilers in the process may write there too. Others may write to /tmp, so symbolic links
// and files of other owners are refused.
int append(const std::string& path, std::string_view text) {
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0644);
  if (file < 0) return errno;
  struct stat s;
  int error = fstat(file, &s) != 0 ? errno : s.st_uid != geteuid() || !S_ISREG(s.st_mode) ? EPERM : 0;
  while (error == 0 && !text.empty()) {
    const ssize_t put = write(file, text.data(), text.size());
    if (put < 0 && errno != EINTR) error = errno;
    if (put > 0) text.remove_prefix(static_cast<size_t>(put));
  }
  close(file);
  return error;
}

}  // namespace

void add_to_perf_map(std::span<const codegen::CodeSymbol> functions) noexcept {
  if (!wanted()) return;
  try {
    std::string lines;
    for (const codegen::CodeSymbol& f : functions)
      lines += fmt::format("{:x} {:x} gradloom::{}\n", f.address, f.bytes, f.name);
    static PerfMap map;
    std::lock_guard lock(map.mutex);
    map.lines += lines;
    const pid_t process = getpid();
    const std::string path = fmt::format("/tmp/perf-{}.map", process);
    if (const int error = append(path, process == map.process ? lines : map.lines)) {
      log(LogLevel::warn, "perf map {} is not written: {}", path,
          std::error_code(error, std::generic_category()).message());
    }
    map.process = process;
  } catch (const std::exception& error) {
    log(LogLevel::warn, "perf map: {}", error.what());
  }
}

}  // namespace gradloom
