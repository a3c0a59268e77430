#pragma once
// Recycles memory of outputs and scratch: the page faults of a fresh large buffer cost more than most kernels take to
// run.
#include <cstdint>
#include <deque>
#include <list>
#include <memory>
#include <unordered_map>

#include "support/fork.h"

namespace gradloom {

// Blocks are 64-byte aligned. Those up to small_bytes come from a per-thread cache shared by all recyclers, and count
// towards no budget; larger ones are kept in size classes up to the budget, the least recently returned evicted first.
// Thread-safe. Blocks may outlive the object that owns it only through the shared_ptr that their owners hold.
class Recycler {
 public:
  static constexpr int64_t small_bytes = 4096;
  static constexpr int64_t huge_page_bytes = int64_t{2} << 20;

  explicit Recycler(int64_t budget_bytes) : budget_(budget_bytes) {}
  ~Recycler();
  Recycler(const Recycler&) = delete;
  Recycler& operator=(const Recycler&) = delete;

  // For tensors, which keep the library in use as long as they hold it.
  static std::shared_ptr<Recycler> make(int64_t budget_bytes);
  static std::shared_ptr<Recycler> process_wide();  // of Tensor::empty

  void* allocate(int64_t bytes);               // bytes > 0; throws Error(resource_exhausted)
  void* try_allocate(int64_t bytes) noexcept;  // null when there is none
  void release(void* data, int64_t bytes) noexcept;
  int64_t kept_bytes() const;  // large blocks available for reuse

 private:
  struct Block {
    void* data;
    int64_t bytes;
  };
  using Blocks = std::list<Block>;  // least recently returned first
  void* reuse(int64_t block_bytes) noexcept;
  Blocks take_until(int64_t kept) noexcept;
  static void free_all(const Blocks& blocks) noexcept;

  const int64_t budget_;
  mutable Mutex mutex_;
  int64_t kept_ = 0;
  Blocks blocks_;
  std::unordered_map<int64_t, std::deque<Blocks::iterator>> by_size_;  // the same order
};

// The bytes actually allocated for a request of a size.
int64_t recycler_block_bytes(int64_t bytes);

}  // namespace gradloom
