#include "runtime/cache/disk_cache.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <system_error>
#include <utility>

#include "runtime/cache/descriptor.h"
#include "runtime/diagnose/log.h"

namespace gradloom {
namespace {

constexpr int64_t largest_file = int64_t{256} << 20;
constexpr int64_t touch_seconds = 60;       // granularity of the last-use time
constexpr int64_t abandoned_seconds = 600;  // an unfinished file this old was left by a process that died
constexpr std::string_view unfinished = "tmp-";
constexpr size_t most_rejected = 4096;

std::string reason(int error) { return std::error_code(error, std::generic_category()).message(); }

void make_folders(const std::string& path) {
  for (size_t at = 1; at != path.npos;) {
    at = path.find('/', at);
    mkdir(path.substr(0, at).c_str(), 0700);  // if it exists, or cannot be created, the open shows it
    if (at != path.npos) ++at;
  }
}

// Why a folder may not be used; empty if it may.
std::string unfit(const struct stat& s, bool writable) {
  if (writable) {
    if (s.st_uid != geteuid()) return fmt::format("it belongs to user {}, not {}", s.st_uid, geteuid());
    if (s.st_mode & 077) return fmt::format("its mode is {:o}; others may have no access", s.st_mode & 07777);
  } else {
    if (s.st_uid != geteuid() && s.st_uid != 0)
      return fmt::format("it belongs to user {}, neither {} nor root", s.st_uid, geteuid());
    if (s.st_mode & 022) return fmt::format("its mode is {:o}; others may not write to it", s.st_mode & 07777);
  }
  return {};
}

// Whether a file's name has this cache's format: no other file in a folder is ever evicted.
bool given_here(std::string_view name) {
  const bool temporary = name.starts_with(unfinished);
  if (!temporary && !name.starts_with("k-") && !name.starts_with("i-")) return false;
  name.remove_prefix(temporary ? unfinished.size() : 2);
  const bool known = name.find_first_not_of(temporary ? "0123456789-" : "0123456789abcdef-") == name.npos;
  return known && (temporary ? name.find('-') != name.npos : name.size() >= 32);
}

}  // namespace

class DiskCache::Folder {
 public:
  Folder(std::string path, bool writable)
      : path_(std::move(path)), writable_(writable), fd_(open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {}

  // Null, with a line in the log, unless it can be used. A missing read-only folder is not logged.
  static std::shared_ptr<Folder> open_checked(const std::string& path, bool writable) {
    if (writable) make_folders(path);
    auto folder = std::make_shared<Folder>(path, writable);
    struct stat s;
    std::string why;
    if (!folder->fd_.ok() || fstat(folder->fd(), &s) != 0) {
      why = reason(errno);
    } else {
      why = unfit(s, writable);
    }
    if (why.empty()) return folder;
    log(LogLevel::warn, "cache folder {} is not used: {}", path, why);
    return nullptr;
  }

  int fd() const { return fd_.get(); }
  const std::string& path() const { return path_; }
  bool writable() const { return writable_; }

  std::vector<DiskFile> list() const {
    std::vector<DiskFile> files;
    const int copy = openat(fd(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);  // with its own file position
    DIR* const stream = copy < 0 ? nullptr : fdopendir(copy);
    if (!stream) {
      if (copy >= 0) close(copy);
      return files;
    }
    while (const dirent* entry = readdir(stream)) {
      struct stat s;
      if (entry->d_name[0] == '.' || fstatat(fd(), entry->d_name, &s, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(s.st_mode))
        continue;
      files.push_back({entry->d_name, s.st_size, s.st_mtim.tv_sec});
    }
    closedir(stream);
    return files;
  }

 private:
  const std::string path_;
  const bool writable_;
  const Descriptor fd_;
};

DiskCache::DiskCache(DiskCacheOptions options)
    : options_(std::move(options)), written_since_look_(options_.budget_bytes) {
  if (!options_.folder.empty()) writable_ = Folder::open_checked(options_.folder, true);
  if (writable_) tiers_.push_back(writable_);
  for (const std::string& path : options_.read_only) {
    if (auto folder = Folder::open_checked(path, false)) tiers_.push_back(std::move(folder));
  }
}

DiskCache::~DiskCache() = default;

std::shared_ptr<DiskCache::Folder> DiskCache::writable() const {
  std::lock_guard lock(mutex_);
  return writable_;
}

// The folder was removed while in use: it is created again, by the first of the threads that notice. Opened outside the
// lock, as what is wrong with it is logged.
std::shared_ptr<DiskCache::Folder> DiskCache::reopen(const std::shared_ptr<Folder>& gone) {
  if (const std::shared_ptr<Folder> now = writable(); now != gone) return now;
  std::shared_ptr<Folder> opened = Folder::open_checked(options_.folder, true);
  std::lock_guard lock(mutex_);
  if (writable_ != gone) return writable_;
  writable_ = std::move(opened);
  if (writable_) {
    tiers_.front() = writable_;
  } else {
    tiers_.erase(tiers_.begin());
  }
  return writable_;
}

std::vector<std::shared_ptr<DiskCache::Folder>> DiskCache::tiers() const {
  std::lock_guard lock(mutex_);
  return tiers_;
}

std::optional<std::string> DiskCache::read(CacheFile kind, const std::string& name) {
  for (const std::shared_ptr<Folder>& folder : tiers()) {
    const Descriptor file(openat(folder->fd(), name.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK));
    const int error = file.ok() ? 0 : errno;
    struct stat s = {};
    if (error == ENOENT) continue;
    if (error == EMFILE || error == ENFILE) {  // of this process or machine, not of the file: reported once
      const bool reported = last_read_error_.exchange(error) == error;
      log(reported ? LogLevel::debug : LogLevel::warn, "cache folder {} is not read: {}", folder->path(),
          reason(error));
      continue;
    }
    const auto refuse = [&](const std::string& why) { reject(*folder, name, s, why); };
    if ((file.ok() ? fstat(file.get(), &s) : fstatat(folder->fd(), name.c_str(), &s, AT_SYMLINK_NOFOLLOW)) != 0 ||
        error != 0) {
      refuse(reason(error ? error : errno));
      continue;
    }
    if (!S_ISREG(s.st_mode)) {
      refuse("it is no file");
      continue;
    }
    if (const std::string why = unfit(s, folder->writable()); !why.empty()) {
      refuse(why);
      continue;
    }
    if (s.st_size > largest_file) {
      refuse(fmt::format("it has {} bytes, at most {} are read", s.st_size, largest_file));
      continue;
    }
    std::string bytes(static_cast<size_t>(s.st_size), '\0');
    if (!read_all(file.get(), bytes)) {
      refuse(reason(errno));
      continue;
    }
    try {
      cache_body(kind, bytes);
    } catch (const Error& error) {
      refuse(error.what());
      continue;
    }
    if (folder->writable() && s.st_mtim.tv_sec + touch_seconds < std::time(nullptr))
      futimens(file.get(), nullptr);  // best effort
    bytes_read_ += static_cast<int64_t>(bytes.size());
    last_read_error_ = 0;
    return bytes;
  }
  return std::nullopt;
}

void DiskCache::reject(const std::string& name, const std::string& why) {
  for (const std::shared_ptr<Folder>& folder : tiers()) {
    struct stat s;
    if (fstatat(folder->fd(), name.c_str(), &s, AT_SYMLINK_NOFOLLOW) == 0) return reject(*folder, name, s, why);
  }
}

void DiskCache::reject(const Folder& folder, const std::string& name, const struct stat& s, const std::string& why) {
  const std::string path = folder.path() + "/" + name;
  {
    std::string fault =
        fmt::format("{} {} {}.{} {}: {}", path, s.st_ino, s.st_mtim.tv_sec, s.st_mtim.tv_nsec, s.st_size, why);
    std::lock_guard lock(mutex_);
    if (rejected_faults_.size() < most_rejected && !rejected_faults_.insert(std::move(fault)).second) return;
  }
  ++rejected_;
  log(LogLevel::warn, "cache file {} is not used: {}", path, why);
}

// 0, or errno.
int DiskCache::write_once(Folder& folder, const std::string& name, std::string_view bytes) {
  static std::atomic<uint32_t> next{0};
  for (;;) {
    const std::string temporary = fmt::format("{}{}-{}", unfinished, getpid(), next++);
    Descriptor file(openat(folder.fd(), temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
    if (!file.ok() && errno == EEXIST) continue;  // left by a process that had this id and died
    if (!file.ok()) return errno;
    if (write_all(file.get(), bytes) && file.close_now() == 0 &&
        renameat(folder.fd(), temporary.c_str(), folder.fd(), name.c_str()) == 0)
      return 0;
    const int error = errno;
    unlinkat(folder.fd(), temporary.c_str(), 0);
    return error;
  }
}

void DiskCache::write_failed(const std::string& name, int error) {
  ++write_failures_;
  // A full or read-only disk is logged once, not for every kernel.
  const bool reported = last_write_error_.exchange(error) == error;
  log(reported ? LogLevel::debug : LogLevel::warn, "cache file {}/{} is not written: {}", options_.folder, name,
      reason(error));
}

void DiskCache::write(const std::string& name, std::string_view bytes) noexcept {
  const auto size = static_cast<int64_t>(bytes.size());
  try {
    std::shared_ptr<Folder> folder = writable();
    if (!folder || size > options_.budget_bytes || size > largest_file) return;
    int error = write_once(*folder, name, bytes);
    if (error == ENOENT) {
      folder = reopen(folder);
      if (!folder) return;  // logged when it was opened
      error = write_once(*folder, name, bytes);
    }
    if (error != 0) return write_failed(name, error);
    last_write_error_ = 0;
    bytes_written_ += size;
    log(LogLevel::debug, "cache file {}/{} is written: {} bytes", folder->path(), name, size);
    if ((written_since_look_ += size) < options_.budget_bytes / 32) return;
    written_since_look_ = 0;
    prune(options_.budget_bytes);
  } catch (const std::exception&) {
    ++write_failures_;  // out of memory: continue without storing
  }
}

std::vector<DiskFile> DiskCache::list(bool read_only) const {
  std::vector<DiskFile> files;
  for (const std::shared_ptr<Folder>& folder : tiers()) {
    if (!read_only && !folder->writable()) continue;
    std::vector<DiskFile> some = folder->list();
    files.insert(files.end(), std::make_move_iterator(some.begin()), std::make_move_iterator(some.end()));
  }
  return files;
}

void DiskCache::remove(const std::string& name) {
  if (const std::shared_ptr<Folder> folder = writable()) unlinkat(folder->fd(), name.c_str(), 0);
}

// Processes may do this concurrently: each file is removed once, and a process that has it open can still read it. The
// lock only avoids duplicate work.
std::string DiskCache::prune(int64_t budget_bytes) {
  const std::shared_ptr<Folder> folder = writable();
  if (!folder) return "there is no folder to write to";
  const NoFork no_fork;  // a child would keep the descriptor, and with it the lock
  const Descriptor turn(openat(folder->fd(), ".lock", O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (turn.ok() && flock(turn.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) return "another process is at it";

  std::vector<DiskFile> files = folder->list();
  const int64_t now = std::time(nullptr);
  int64_t total = 0;
  int error = 0;
  std::erase_if(files, [&](const DiskFile& file) {
    if (!given_here(file.name)) return true;
    if (!file.name.starts_with(unfinished)) {
      total += file.bytes;
      return false;
    }
    if (file.used_seconds + abandoned_seconds < now) unlinkat(folder->fd(), file.name.c_str(), 0);
    return true;
  });
  if (total <= budget_bytes) return {};
  std::sort(files.begin(), files.end(),
            [](const DiskFile& a, const DiskFile& b) { return a.used_seconds < b.used_seconds; });
  const int64_t before = total;
  for (const DiskFile& file : files) {
    if (total <= budget_bytes / 8 * 7) break;  // leaves headroom, so that a scan rarely evicts
    if (unlinkat(folder->fd(), file.name.c_str(), 0) == 0)
      ++evictions_;
    else if (errno != ENOENT)
      error = errno;
    total -= file.bytes;
  }
  log(LogLevel::debug, "cache folder {} had {} bytes and may have {}: the longest unused files went, {} bytes stay",
      folder->path(), before, budget_bytes, total);
  return error ? "a file cannot be removed: " + reason(error) : "";
}

DiskCacheStats DiskCache::stats() const {
  return {rejected_, write_failures_, evictions_, bytes_read_, bytes_written_};
}

namespace {

// A folder that would have to be made in another user's folder (root with that user's HOME) would be in that user's
// way: nobody asked for it by name.
std::string unless_of_another(const std::string& folder) {
  struct stat s;
  for (std::string at = folder; !at.empty(); at.erase(at.rfind('/'))) {
    if (stat(at.c_str(), &s) != 0) continue;
    if (s.st_uid == geteuid() || s.st_uid == 0) break;
    log(LogLevel::warn, "cache folder {} is not used: {} belongs to user {}, not {}; GRADLOOM_CACHE_DIR names another",
        folder, at, s.st_uid, geteuid());
    return "";
  }
  return folder;
}

}  // namespace

std::string default_cache_folder() {
  const auto variable = [](const char* name) {
    const char* const value = std::getenv(name);
    return std::string(value ? value : "");
  };
  if (const std::string folder = variable("GRADLOOM_CACHE_DIR"); !folder.empty()) return folder == "off" ? "" : folder;
  if (const std::string xdg = variable("XDG_CACHE_HOME"); xdg.starts_with('/'))
    return unless_of_another(xdg + "/gradloom");  // the XDG specification says to ignore relative paths
  const std::string home = variable("HOME");
  return home.starts_with('/') ? unless_of_another(home + "/.cache/gradloom") : "";
}

std::vector<std::string> default_read_only_folders() {
  std::vector<std::string> folders;
  const char* const value = std::getenv("GRADLOOM_CACHE_READONLY");
  for (std::string_view rest = value ? value : ""; !rest.empty();) {
    const size_t end = std::min(rest.find(':'), rest.size());
    if (end > 0) folders.emplace_back(rest.substr(0, end));
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return folders;
}

}  // namespace gradloom
