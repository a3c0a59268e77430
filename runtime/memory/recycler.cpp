#include "runtime/memory/recycler.h"

#include <fmt/format.h>

#include <bit>
#include <cstdlib>

#include "gradloom/error.h"
#include "support/lasting.h"
#include "support/per_thread.h"

#ifdef __linux__
#include <sys/mman.h>
#endif

namespace gradloom {
namespace {

constexpr int64_t alignment = 64;
constexpr int small_classes = 7;                // 64, 128, ..., 4096 bytes
constexpr int64_t small_kept_bytes = 64 << 10;  // per size class and thread

int64_t round_up(int64_t value, int64_t multiple) { return (value + multiple - 1) / multiple * multiple; }

int small_class(int64_t bytes) { return std::bit_width(static_cast<uint64_t>(bytes - 1) / alignment); }

void* system_allocate(int64_t bytes) noexcept {
#ifdef __linux__
  if (bytes >= Recycler::huge_page_bytes) {
    // Mapped with slack, then trimmed to huge-page alignment.
    const int64_t page = Recycler::huge_page_bytes;
    void* mapped = mmap(nullptr, bytes + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped == MAP_FAILED) return nullptr;
    char* begin = static_cast<char*>(mapped);
    char* data = reinterpret_cast<char*>(round_up(reinterpret_cast<intptr_t>(begin), page));
    if (data != begin) munmap(begin, data - begin);
    if (data != begin + page) munmap(data + bytes, begin + page - data);
    madvise(data, bytes, MADV_HUGEPAGE);  // a hint: failure costs only speed
    return data;
  }
#endif
  return std::aligned_alloc(alignment, bytes);
}

void system_free(void* data, int64_t bytes) noexcept {
#ifdef __linux__
  if (bytes >= Recycler::huge_page_bytes) {
    munmap(data, bytes);
    return;
  }
#endif
  (void)bytes;
  std::free(data);
}

// Free small blocks of this thread, linked through their first word.
struct SmallCache {
  void* first[small_classes] = {};
  int64_t bytes[small_classes] = {};
  SmallCache() = default;
  SmallCache(const SmallCache&) = delete;
  SmallCache& operator=(const SmallCache&) = delete;
  ~SmallCache() {
    for (void*& head : first) {
      while (head) {
        void* next = *static_cast<void**>(head);
        std::free(head);
        head = next;
      }
    }
  }
};

// Null when there is no memory for one.
SmallCache* small_cache() noexcept {
  try {
    return &per_thread<SmallCache>();
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

void* allocate_small(int64_t bytes) noexcept {
  const int c = small_class(bytes);
  SmallCache* const cache = small_cache();
  if (void* data = cache ? cache->first[c] : nullptr) {
    cache->first[c] = *static_cast<void**>(data);
    cache->bytes[c] -= alignment << c;
    return data;
  }
  return std::aligned_alloc(alignment, alignment << c);
}

void release_small(void* data, int64_t bytes) noexcept {
  const int c = small_class(bytes);
  SmallCache* const cache = small_cache();
  if (!cache || cache->bytes[c] + (alignment << c) > small_kept_bytes) {
    std::free(data);
    return;
  }
  *static_cast<void**>(data) = cache->first[c];
  cache->first[c] = data;
  cache->bytes[c] += alignment << c;
}

}  // namespace

int64_t recycler_block_bytes(int64_t bytes) {
  if (bytes <= Recycler::small_bytes) return alignment << small_class(bytes);
  // Eight size classes per octave: at most an eighth is wasted.
  const int64_t step = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(bytes))) / 8;
  const int64_t rounded = round_up(bytes, step);
  return rounded >= Recycler::huge_page_bytes ? round_up(rounded, Recycler::huge_page_bytes) : rounded;
}

std::shared_ptr<Recycler> Recycler::process_wide() {
  static constinit Lasting<Recycler> recycler;
  return {std::make_shared<InUse>(), &recycler.get([] { return Recycler(int64_t{1} << 30); })};
}

std::shared_ptr<Recycler> Recycler::make(int64_t budget_bytes) {
  struct Own {
    InUse in_use;
    Recycler recycler;
  };
  const std::shared_ptr<Own> own(new Own{{}, Recycler(budget_bytes)});
  return {own, &own->recycler};
}

Recycler::~Recycler() { free_all(blocks_); }

void Recycler::free_all(const Blocks& blocks) noexcept {
  for (const Block& block : blocks) system_free(block.data, block.bytes);
}

void* Recycler::reuse(int64_t block_bytes) noexcept {
  std::lock_guard lock(mutex_);
  const auto found = by_size_.find(block_bytes);
  if (found == by_size_.end() || found->second.empty()) return nullptr;
  const Blocks::iterator block = found->second.back();  // the one most likely still in a cache
  void* data = block->data;
  found->second.pop_back();
  blocks_.erase(block);
  kept_ -= block_bytes;
  return data;
}

// Removes the least recently returned blocks until at most `kept` bytes remain. Requires the lock; the caller frees
// them outside it.
Recycler::Blocks Recycler::take_until(int64_t kept) noexcept {
  Blocks taken;
  while (kept_ > kept && !blocks_.empty()) {
    const int64_t bytes = blocks_.front().bytes;
    by_size_[bytes].pop_front();
    kept_ -= bytes;
    taken.splice(taken.end(), blocks_, blocks_.begin());
  }
  return taken;
}

void* Recycler::try_allocate(int64_t bytes) noexcept {
  if (bytes <= small_bytes) return allocate_small(bytes);
  if (bytes > int64_t{1} << 60) return nullptr;
  const int64_t block_bytes = recycler_block_bytes(bytes);
  if (void* data = reuse(block_bytes)) return data;
  if (void* data = system_allocate(block_bytes)) return data;
  Blocks taken;
  {
    std::lock_guard lock(mutex_);
    taken = take_until(0);
  }
  free_all(taken);
  return system_allocate(block_bytes);
}

void* Recycler::allocate(int64_t bytes) {
  if (void* data = try_allocate(bytes)) return data;
  throw Error(ErrorCode::resource_exhausted, fmt::format("no memory for a buffer of {} bytes", bytes));
}

void Recycler::release(void* data, int64_t bytes) noexcept {
  if (bytes <= small_bytes) return release_small(data, bytes);
  const int64_t block_bytes = recycler_block_bytes(bytes);
  if (block_bytes > budget_) return system_free(data, block_bytes);
  Blocks taken;
  try {
    Blocks block;
    block.push_back({data, block_bytes});
    std::lock_guard lock(mutex_);
    taken = take_until(budget_ - block_bytes);
    by_size_[block_bytes].push_back(block.begin());
    blocks_.splice(blocks_.end(), block);
    kept_ += block_bytes;
  } catch (const std::bad_alloc&) {  // from the bookkeeping
    system_free(data, block_bytes);
  }
  free_all(taken);
}

int64_t Recycler::kept_bytes() const {
  std::lock_guard lock(mutex_);
  return kept_;
}

}  // namespace gradloom
