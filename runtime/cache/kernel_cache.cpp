#include "runtime/cache/kernel_cache.h"

#include <algorithm>

#include "runtime/diagnose/log.h"
#include "support/per_thread.h"

namespace gradloom {
namespace {

// Memory of an entry in addition to its code: the entry, its key, its map node, and an interpreted kernel's nodes.
constexpr int64_t entry_bytes = 2048, interpreted_bytes = 16 << 10;

int64_t bytes_of(const KernelEntry& entry) {
  return entry_bytes + static_cast<int64_t>(entry.key.size() * sizeof(uint64_t)) +
         (entry.loaded->interpreted() ? interpreted_bytes : entry.loaded->code_bytes());
}

bool same_key(std::span<const uint64_t> a, std::span<const uint64_t> b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end());
}

// A per-thread front cache of recently run kernels, of any cache. It holds weak references: evicted code is freed at
// once.
struct FrontSlot {
  uint64_t cache = 0, hash = 0;
  KernelCache::Kept kept;
};
constexpr size_t front_slots = 64;
struct Front {
  FrontSlot slots[front_slots];
};

FrontSlot& front_slot(uint64_t cache, uint64_t hash) {
  return per_thread<Front>().slots[(hash ^ cache * 0x9e37) % front_slots];
}

void log_evicted(const std::vector<KernelHandle>& evicted) {
  for (const KernelHandle& one : evicted)
    log(LogLevel::debug, "memory cache: {} {} is evicted, the longest unused", one->report->op, one->report->strategy);
}

uint64_t next_id() {
  static std::atomic<uint64_t> next{1};
  return next.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace

KernelCache::KernelCache(int64_t budget_bytes) : budget_(budget_bytes), id_(next_id()) {}

// Requires the lock.
KernelHandle KernelCache::find_locked(const KernelKey& key) const {
  const auto [begin, end] = kernels_.equal_range(key.hash());
  for (auto it = begin; it != end; ++it) {
    if (same_key(it->second->key, key.words())) return it->second;
  }
  return nullptr;
}

KernelHandle KernelCache::hit(KernelHandle entry) {
  const uint64_t now = clock_.load(std::memory_order_relaxed);
  if (entry->used.load(std::memory_order_relaxed) != now) entry->used.store(now, std::memory_order_relaxed);
  hits_.add();
  return entry;
}

KernelHandle KernelCache::find_kept(const Kept& kept) {
  if (kept.generation != generation()) return nullptr;
  KernelHandle entry = kept.entry.lock();
  return entry ? hit(std::move(entry)) : nullptr;
}

KernelHandle KernelCache::find_in_front(const KernelKey& key) {
  const FrontSlot& slot = front_slot(id_, key.hash());
  if (slot.cache != id_ || slot.kept.generation != generation() || slot.hash != key.hash()) return nullptr;
  KernelHandle entry = slot.kept.entry.lock();
  return entry && same_key(entry->key, key.words()) ? hit(std::move(entry)) : nullptr;
}

KernelHandle KernelCache::find(const KernelKey& key) {
  if (KernelHandle entry = find_in_front(key)) return entry;
  const uint64_t before = generation();
  std::lock_guard lock(mutex_);
  KernelHandle entry = find_locked(key);
  if (!entry) return nullptr;
  front_slot(id_, key.hash()) = {id_, key.hash(), {entry, before}};
  return hit(std::move(entry));
}

void KernelCache::put(const KernelKey& key, const std::shared_ptr<KernelEntry>& entry) {
  entry->key.assign(key.words().begin(), key.words().end());
  std::vector<KernelHandle> evicted;  // their code is freed outside the lock
  {
    std::lock_guard lock(mutex_);
    if (!find_locked(key)) insert(key, entry, evicted);
  }
  log_evicted(evicted);
}

void KernelCache::remove(const KernelKey& key) {
  KernelHandle dropped;  // its code is freed outside the lock
  std::lock_guard lock(mutex_);
  const auto [begin, end] = kernels_.equal_range(key.hash());
  for (auto it = begin; it != end; ++it) {
    if (!same_key(it->second->key, key.words())) continue;
    bytes_ -= bytes_of(*it->second);
    code_bytes_ -= it->second->loaded->code_bytes();
    dropped = std::move(it->second);
    kernels_.erase(it);
    ++evictions_;
    return;
  }
}

void KernelCache::forget(const KernelKey& key) {
  remove(key);
  generation_.fetch_add(1, std::memory_order_release);
}

void KernelCache::replace(const KernelKey& key, const std::shared_ptr<KernelEntry>& entry) {
  remove(key);
  put(key, entry);
  generation_.fetch_add(1, std::memory_order_release);
}

KernelHandle KernelCache::get(const KernelKey& key, const std::function<std::shared_ptr<KernelEntry>()>& build,
                              bool& built) {
  built = false;
  if (KernelHandle entry = find_in_front(key)) return entry;
  const uint64_t before = generation();
  FrontSlot& slot = front_slot(id_, key.hash());

  std::promise<Built> promise;
  Slot other;
  {
    std::lock_guard lock(mutex_);
    if (KernelHandle entry = find_locked(key)) {
      slot = {id_, key.hash(), {entry, before}};
      return hit(std::move(entry));
    }
    const auto [begin, end] = pending_.equal_range(key.hash());
    for (auto it = begin; it != end; ++it) {
      if (it->second.generation == fork_generation() && same_key(it->second.key, key.words())) other = it->second.slot;
    }
    if (!other.valid())
      pending_.emplace(
          key.hash(),
          Pending{{key.words().begin(), key.words().end()}, promise.get_future().share(), fork_generation()});
  }
  misses_.add();
  if (other.valid()) {
    const Built& result = other.get();
    if (!result.entry) throw Error(result.code, result.message);
    return result.entry;
  }

  const auto done = [&] {  // requires the lock
    const auto [begin, end] = pending_.equal_range(key.hash());
    for (auto it = begin; it != end; ++it) {
      if (!same_key(it->second.key, key.words())) continue;
      pending_.erase(it);
      return;
    }
  };
  std::vector<KernelHandle> evicted;  // their code is freed outside the lock
  try {
    std::shared_ptr<KernelEntry> entry = build();
    entry->key.assign(key.words().begin(), key.words().end());
    {
      std::lock_guard lock(mutex_);
      insert(key, entry, evicted);
      done();
    }
    log_evicted(evicted);
    promise.set_value({.entry = entry});
    front_slot(id_, key.hash()) = {id_, key.hash(), {entry, before}};
    built = true;
    return entry;
  } catch (...) {
    {
      std::lock_guard lock(mutex_);
      done();
    }
    const Error error = capture([]() -> std::monostate { throw; }).error();
    promise.set_value({.code = error.code(), .message = error.what()});
    throw;
  }
}

// Requires the lock. A kernel larger than the whole budget is not cached.
void KernelCache::insert(const KernelKey& key, const std::shared_ptr<KernelEntry>& entry,
                         std::vector<KernelHandle>& evicted) {
  const int64_t bytes = bytes_of(*entry);
  if (bytes > budget_) return;
  entry->used.store(clock_.fetch_add(1, std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  kernels_.emplace(key.hash(), entry);
  bytes_ += bytes;
  code_bytes_ += entry->loaded->code_bytes();
  if (bytes_ > budget_) evict(evicted);
}

// Requires the lock. Evicts down to 7/8 of the budget, the least recently used first, so that an insert rarely needs to
// sort.
void KernelCache::evict(std::vector<KernelHandle>& evicted) {
  std::vector<std::pair<uint64_t, Kernels::iterator>> by_use;
  for (auto it = kernels_.begin(); it != kernels_.end(); ++it)
    by_use.emplace_back(it->second->used.load(std::memory_order_relaxed), it);
  std::sort(by_use.begin(), by_use.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  by_use.pop_back();  // the one just inserted
  for (const auto& [used, it] : by_use) {
    if (bytes_ <= budget_ / 8 * 7) break;
    bytes_ -= bytes_of(*it->second);
    code_bytes_ -= it->second->loaded->code_bytes();
    evicted.push_back(std::move(it->second));
    kernels_.erase(it);
    ++evictions_;
  }
}

void KernelCache::clear() {
  Kernels dropped;  // code is freed outside the lock
  std::lock_guard lock(mutex_);
  dropped.swap(kernels_);
  bytes_ = code_bytes_ = 0;
  generation_.fetch_add(1, std::memory_order_release);
}

void KernelCache::add_to(Stats& stats) const {
  stats.hits += hits_.total();
  stats.misses += misses_.total();
  std::lock_guard lock(mutex_);
  stats.entries += static_cast<int64_t>(kernels_.size());
  stats.code_bytes += code_bytes_;
  stats.evictions += evictions_;
}

}  // namespace gradloom
