#pragma once
// The in-memory cache of compiled kernels: bounded by bytes, one compile per key, no lock on a hit.
#include <atomic>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "gradloom/report.h"
#include "runtime/backend/backend.h"
#include "runtime/cache/kernel_key.h"
#include "support/counter.h"
#include "support/fork.h"

namespace gradloom {

// A kernel that can be launched. Holders of a reference keep its code alive.
struct KernelEntry {
  std::shared_ptr<const LoadedKernel> loaded;
  bool own = false;  // an embedder wrote its nest, through an Op or directly
  std::vector<ScalarSource> sources;
  std::shared_ptr<const KernelReport> report;
  bool from_disk = false;
  // For the cache.
  std::vector<uint64_t> key;
  mutable std::atomic<uint64_t> used{0};   // the cache's clock at about the last hit
  mutable std::atomic<uint32_t> calls{0};  // of a specialisation, recently: for the specialiser
};
using KernelHandle = std::shared_ptr<const KernelEntry>;

class KernelCache {
 public:
  explicit KernelCache(int64_t budget_bytes);

  // The kernel of this key, built by `build` on a miss. Concurrent requests for one key share one build, and its error,
  // which is not cached. `built`: whether this call built it.
  KernelHandle get(const KernelKey& key, const std::function<std::shared_ptr<KernelEntry>()>& build, bool& built);
  // Lookup only.
  KernelHandle find(const KernelKey& key);
  // Looks in this thread's front cache only; takes no lock.
  KernelHandle find_in_front(const KernelKey& key);
  // A kernel that was found, as its finder keeps it to find it again without a key or a lock: null once it is evicted,
  // or the cache cleared. `generation` is read before the kernel is looked up.
  struct Kept {
    std::weak_ptr<const KernelEntry> entry;
    uint64_t generation = 0;
  };
  uint64_t generation() const { return generation_.load(std::memory_order_acquire); }
  KernelHandle find_kept(const Kept& kept);
  // Inserts a kernel that was built elsewhere.
  void put(const KernelKey& key, const std::shared_ptr<KernelEntry>& entry);
  void remove(const KernelKey& key);
  // The same, so that who kept the kernel looks for another one; `replace`: this one.
  void forget(const KernelKey& key);
  void replace(const KernelKey& key, const std::shared_ptr<KernelEntry>& entry);
  void clear();
  void add_to(Stats& stats) const;

 private:
  // The outcome of a build. Threads that waited throw their own error objects: an exception object is not shared
  // between threads.
  struct Built {
    KernelHandle entry;  // or, when there is none:
    ErrorCode code = ErrorCode::internal;
    std::string message;
  };
  using Slot = std::shared_future<Built>;
  struct Hash {
    size_t operator()(uint64_t hash) const { return hash; }
  };
  // By hash; keys with equal hashes share a bucket and are distinguished by their words.
  using Kernels = std::unordered_multimap<uint64_t, KernelHandle, Hash>;
  struct Pending {
    std::vector<uint64_t> key;
    Slot slot;
    uint32_t generation;  // of forks: nobody finishes a build of the parent's other threads
  };

  KernelHandle find_locked(const KernelKey& key) const;
  KernelHandle hit(KernelHandle entry);
  void insert(const KernelKey& key, const std::shared_ptr<KernelEntry>& entry, std::vector<KernelHandle>& evicted);
  void evict(std::vector<KernelHandle>& evicted);

  const int64_t budget_;
  const uint64_t id_;                    // unique among all caches ever created
  std::atomic<uint64_t> generation_{0};  // incremented to invalidate front caches
  std::atomic<uint64_t> clock_{1};       // incremented by every insert
  mutable Mutex mutex_;
  Kernels kernels_;
  std::unordered_multimap<uint64_t, Pending, Hash> pending_;
  int64_t bytes_ = 0, code_bytes_ = 0, evictions_ = 0;
  Counter hits_, misses_;
};

}  // namespace gradloom
