#pragma once
// The tuning log of a runtime: a file that processes share. Read once; a result is added under a lock by writing the
// whole file under a temporary name and renaming it, so that a reader never sees half of it. What is wrong with the
// file is a line in the library's log, never an error.
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gradloom/log.h"
#include "runtime/tuning/tuning_entry.h"
#include "support/fork.h"

namespace gradloom {

class TuningLog {
 public:
  // No file, and nothing is read or written, where `path` is empty.
  TuningLog(std::string path, std::string machine);

  const std::string& path() const { return path_; }
  const std::string& machine() const { return machine_; }

  // The last entry of this machine for the call.
  std::optional<TuningEntry> find(const std::string& op, const std::string& call);
  // Adds the entry here and to the file, where one of the same key goes. Returns what went wrong with the file, or an
  // empty string.
  std::string add(const TuningEntry& entry);
  // Counts, and reports once, an entry that no longer serves its call.
  void ignore(const TuningEntry& entry, const std::string& why);
  int64_t ignored();

 private:
  void read_once(std::vector<std::pair<LogLevel, std::string>>& messages);  // requires the lock
  std::string write(const TuningEntry& entry) const;

  const std::string path_, machine_;
  Mutex mutex_;
  bool read_ = false;
  int64_t ignored_ = 0;
  std::map<std::pair<std::string, std::string>, TuningEntry> entries_;  // by op and call
};

// Of RuntimeOptions::tuning_log and the disk cache's folder: the file's path; empty where there is none.
std::string tuning_log_path(const std::string& option, const std::string& cache_folder);

}  // namespace gradloom
