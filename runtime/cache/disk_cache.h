#pragma once
// A folder of small files shared by processes: written under a temporary name and renamed, read whole, checked, evicted
// least recently used first. Any failure is a miss with a line in the log. Validates frames (cache_entry.h), but not
// their contents.
#include <sys/stat.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/cache/cache_entry.h"
#include "support/fork.h"

namespace gradloom {

struct DiskCacheOptions {
  std::string folder;                  // empty: only read_only
  std::vector<std::string> read_only;  // folders searched after `folder`; never written, never evicted from
  int64_t budget_bytes = 0;            // of `folder`
};

struct DiskCacheStats {
  int64_t rejected = 0;  // files that were there but torn, foreign or unreadable
  int64_t write_failures = 0;
  int64_t evictions = 0;
  int64_t bytes_read = 0, bytes_written = 0;
};

// One file of the folder.
struct DiskFile {
  std::string name;
  int64_t bytes = 0;
  int64_t used_seconds = 0;  // since the epoch: about the last use
};

class DiskCache {
 public:
  // Creates the folder (0700) if it is missing. A folder that is not owned by this user, or that others may access, is
  // not used.
  explicit DiskCache(DiskCacheOptions options);
  ~DiskCache();
  DiskCache(const DiskCache&) = delete;
  DiskCache& operator=(const DiskCache&) = delete;

  bool usable() const { return !tiers_.empty(); }  // some folder can be read

  // The file's bytes, its frame checked, from the first folder that has an intact copy.
  std::optional<std::string> read(CacheFile kind, const std::string& name);
  // Never throws, and never leaves a partial file under the final name.
  void write(const std::string& name, std::string_view bytes) noexcept;
  // Reports that a file returned by `read` was invalid: counted and logged, once a file and fault.
  void reject(const std::string& name, const std::string& why);

  // Of the writable folder; all of them with `read_only`. Unfinished files have names that begin with "tmp-".
  std::vector<DiskFile> list(bool read_only = false) const;
  void remove(const std::string& name);
  // Evicts down to `budget_bytes`, least recently used first, and removes what killed processes left. Files with other
  // names are not its own and stay. Returns an error description, or an empty string.
  std::string prune(int64_t budget_bytes);
  DiskCacheStats stats() const;

 private:
  class Folder;
  std::shared_ptr<Folder> writable() const;
  std::shared_ptr<Folder> reopen(const std::shared_ptr<Folder>& gone);
  int write_once(Folder& folder, const std::string& name, std::string_view bytes);
  void write_failed(const std::string& name, int error);
  void reject(const Folder& folder, const std::string& name, const struct stat& file, const std::string& why);
  std::vector<std::shared_ptr<Folder>> tiers() const;

  const DiskCacheOptions options_;
  mutable Mutex mutex_;
  std::shared_ptr<Folder> writable_;            // or none
  std::vector<std::shared_ptr<Folder>> tiers_;  // read in this order; the writable one, if any, first
  std::atomic<int64_t> written_since_look_;     // a scan of the folder follows when this is 1/32 of the budget
  std::set<std::string> rejected_faults_;
  std::atomic<int> last_write_error_{0}, last_read_error_{0};
  std::atomic<int64_t> rejected_{0}, write_failures_{0}, evictions_{0}, bytes_read_{0}, bytes_written_{0};
};

// GRADLOOM_CACHE_DIR, else gradloom in XDG_CACHE_HOME, else in ~/.cache; empty where there is none, or where it is
// "off".
std::string default_cache_folder();
std::vector<std::string> default_read_only_folders();  // GRADLOOM_CACHE_READONLY, separated by ':'

}  // namespace gradloom
