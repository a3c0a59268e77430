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
#include <utility>

#include "runtime/diagnose/log.h"
#include "support/lasting.h"

namespace gradloom {
namespace {

struct PerfMap {
  Mutex mutex;
  std::string lines;  // of all functions so far: a forked child, which inherits them, writes its own file
  pid_t process = 0;  // the process whose file contains them
};

bool wanted() {
  static constinit Lasting<const bool> on;
  return on.get([] {
    const char* const value = std::getenv("GRADLOOM_PERF_MAP");
    const std::string_view text = value ? value : "";
    return !text.empty() && text != "0" && text != "off";
  });
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

int add(const std::string& lines, pid_t process, const std::string& path) {
  static constinit Lasting<PerfMap> lasting;
  PerfMap& map = *lasting;
  std::lock_guard lock(map.mutex);
  map.lines += lines;
  const bool new_lines_only = std::exchange(map.process, process) == process;
  return append(path, new_lines_only ? lines : map.lines);
}

}  // namespace

void add_to_perf_map(std::span<const codegen::CodeSymbol> functions) noexcept {
  if (!wanted()) return;
  try {
    std::string lines;
    for (const codegen::CodeSymbol& f : functions)
      lines += fmt::format("{:x} {:x} gradloom::{}\n", f.address, f.bytes, f.name);
    const pid_t process = getpid();
    const std::string path = fmt::format("/tmp/perf-{}.map", process);
    if (const int error = add(lines, process, path)) {
      log(LogLevel::warn, "perf map {} is not written: {}", path,
          std::error_code(error, std::generic_category()).message());
    }
  } catch (const std::exception& error) {
    log(LogLevel::warn, "perf map: {}", error.what());
  }
}

}  // namespace gradloom
