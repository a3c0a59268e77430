#pragma once
// Compiled kernels on disk: an op-level index over a content-addressed store. Code is opaque bytes here.
#include <atomic>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "gradloom/report.h"
#include "runtime/cache/cache_entry.h"
#include "runtime/cache/disk_cache.h"
#include "runtime/cache/op_key.h"
#include "support/fork.h"

namespace gradloom {

class KernelStore {
 public:
  // `toolchain` and `features` are part of every content key.
  KernelStore(DiskCacheOptions options, std::string toolchain, std::string target, std::string features);

  bool usable() const { return files_.usable(); }
  const std::string& toolchain() const { return toolchain_; }
  const std::string& target() const { return target_; }

  struct Found {
    IndexRecord index;
    KernelRecord kernel;
  };
  // Lookup by an op's key, without IR. A miss is explained in the stats.
  std::optional<Found> find(const OpKey& key);
  // Lookup by content.
  std::string key_of(std::string_view lowered_ir) const { return content_key(toolchain_, features_, lowered_ir); }
  std::optional<KernelRecord> find(const std::string& content_key);

  void put(const KernelRecord& kernel);
  void put(const IndexRecord& index);
  // Reports code that could not be loaded.
  void reject(const KernelRecord& kernel, const std::string& why);

  void hit() { ++hits_; }
  void add_to(Stats& stats) const;

 private:
  void explain_miss(const OpKey& key);

  DiskCache files_;
  const std::string toolchain_, target_, features_;
  std::atomic<int64_t> hits_{0}, misses_{0}, read_ns_{0};
  mutable Mutex mutex_;
  bool listed_ = false;
  std::vector<std::string> names_;  // of index files known to this process
  std::map<std::string, int64_t> miss_parts_;
  std::deque<std::string> recent_misses_;
};

}  // namespace gradloom
