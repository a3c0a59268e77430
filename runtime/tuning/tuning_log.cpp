#include "runtime/tuning/tuning_log.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "runtime/cache/descriptor.h"
#include "runtime/diagnose/log.h"

namespace gradloom {
namespace {

constexpr int64_t largest_file = int64_t{64} << 20;
constexpr auto longest_wait = std::chrono::seconds(5);  // for another process that writes

std::string reason(int error) { return std::error_code(error, std::generic_category()).message(); }

// The file's text, empty where there is none. What is wrong with it goes to `fault`.
std::string read_file(const std::string& path, std::string& fault) {
  const Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat s = {};
  if (!file.ok() || fstat(file.get(), &s) != 0) {
    if (errno != ENOENT) fault = reason(errno);
    return {};
  }
  if (!S_ISREG(s.st_mode)) return fault = "it is no file", std::string();
  if (s.st_size > largest_file) {
    fault = fmt::format("it has {} bytes, at most {} are read", s.st_size, largest_file);
    return {};
  }
  std::string text(static_cast<size_t>(s.st_size), '\0');
  if (!read_all(file.get(), text)) return fault = reason(errno), std::string();
  return text;
}

// Of one process at a time, between all that write this log. The lock has a file of its own, as the log's is replaced.
class FileLock {
 public:
  explicit FileLock(const std::string& path)
      : file_(open((path + ".lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600)) {
    const auto deadline = std::chrono::steady_clock::now() + longest_wait;
    while (file_.ok() && flock(file_.get(), LOCK_EX | LOCK_NB) != 0) {
      if ((errno != EWOULDBLOCK && errno != EINTR) || std::chrono::steady_clock::now() > deadline) {
        error_ = errno;
        return;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    if (!file_.ok()) error_ = errno;
  }
  ~FileLock() {
    if (error_ == 0) flock(file_.get(), LOCK_UN);  // a child of fork may have the descriptor, too
  }
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;
  int error() const { return error_; }

 private:
  Descriptor file_;
  int error_ = 0;
};

// Returns 0, or errno.
int replace_file(const std::string& path, std::string_view text) {
  static std::atomic<uint32_t> next{0};
  const std::string temporary = fmt::format("{}.{}-{}", path, getpid(), next++);
  Descriptor file(open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0644));
  if (!file.ok()) return errno;
  if (write_all(file.get(), text) && file.close_now() == 0 && rename(temporary.c_str(), path.c_str()) == 0) return 0;
  const int error = errno;
  unlink(temporary.c_str());
  return error;
}

void make_folders(const std::string& path) {
  for (size_t at = path.find('/', 1); at != std::string::npos; at = path.find('/', at + 1))
    mkdir(path.substr(0, at).c_str(), 0700);  // if it exists, or cannot be created, the open shows it
}

}  // namespace

TuningLog::TuningLog(std::string path, std::string machine) : path_(std::move(path)), machine_(std::move(machine)) {}

// The messages are logged outside the lock: a sink is the host's code.
void TuningLog::read_once(std::vector<std::pair<LogLevel, std::string>>& messages) {
  if (read_) return;
  read_ = true;
  if (path_.empty()) return;
  std::string fault;
  const std::string text = read_file(path_, fault);
  if (!fault.empty()) messages.emplace_back(LogLevel::warn, fmt::format("tuning log {} is not read: {}", path_, fault));
  int64_t foreign = 0, damaged = 0;
  std::string first;
  for (TuningPart& part : parse_tuning_log(text)) {
    if (!part.fault.empty()) {
      if (damaged++ == 0) first = fmt::format("line {}: {}", part.line, part.fault);
    } else if (part.entry.machine != machine_) {
      ++foreign;
    } else {
      const std::pair<std::string, std::string> key(part.entry.op, part.entry.call);
      entries_.insert_or_assign(key, std::move(part.entry));
    }
  }
  ignored_ += damaged;
  if (damaged > 0)
    messages.emplace_back(LogLevel::warn, fmt::format("tuning log {}: {} {} ignored; {}", path_, damaged,
                                                      damaged == 1 ? "entry is" : "entries are", first));
  if (foreign > 0)
    messages.emplace_back(LogLevel::info, fmt::format("tuning log {}: {} {} of other machines", path_, foreign,
                                                      foreign == 1 ? "entry is" : "entries are"));
  messages.emplace_back(LogLevel::info, fmt::format("tuning log {}: {} calls of this machine", path_, entries_.size()));
}

std::optional<TuningEntry> TuningLog::find(const std::string& op, const std::string& call) {
  std::vector<std::pair<LogLevel, std::string>> messages;
  std::optional<TuningEntry> found;
  {
    std::lock_guard lock(mutex_);
    read_once(messages);
    if (const auto at = entries_.find({op, call}); at != entries_.end()) found = at->second;
  }
  for (const auto& [level, message] : messages) log(level, "{}", message);
  return found;
}

std::string TuningLog::add(const TuningEntry& entry) {
  find(entry.op, entry.call);  // what is in the file comes first
  {
    std::lock_guard lock(mutex_);
    entries_.insert_or_assign({entry.op, entry.call}, entry);
  }
  return path_.empty() ? std::string() : write(entry);
}

// All else that is in the file stays as it is, damaged and foreign entries and comments included.
std::string TuningLog::write(const TuningEntry& entry) const {
  make_folders(path_);
  const FileLock lock(path_);
  if (lock.error() != 0) return reason(lock.error());
  std::string fault;
  const std::string before = read_file(path_, fault);
  if (!fault.empty()) return fault;
  std::string after;
  size_t kept = 0;
  for (const TuningPart& part : parse_tuning_log(before)) {
    if (!part.fault.empty() || !part.entry.same_key(entry)) continue;
    after += before.substr(kept, part.begin - kept);
    kept = part.end;
  }
  after += before.substr(kept);
  if (!after.empty() && after.back() != '\n') after += '\n';
  after += print(entry);
  const int error = replace_file(path_, after);
  return error == 0 ? std::string() : reason(error);
}

void TuningLog::ignore(const TuningEntry& entry, const std::string& why) {
  {
    std::lock_guard lock(mutex_);
    ++ignored_;
    entries_.erase({entry.op, entry.call});
  }
  log(LogLevel::warn, "{}: its entry in the tuning log is ignored, the rules choose: {}", entry.op, why);
}

int64_t TuningLog::ignored() {
  std::lock_guard lock(mutex_);
  return ignored_;
}

std::string tuning_log_path(const std::string& option, const std::string& cache_folder) {
  if (!option.empty()) return option;
  if (const char* const named = std::getenv("GRADLOOM_TUNING_LOG"); named && *named) return named;
  return cache_folder.empty() ? std::string() : cache_folder + "/tuning.log";
}

}  // namespace gradloom
