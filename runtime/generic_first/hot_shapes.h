#pragma once
// Recent call counts of shapes: a table of fixed size that threads read and increment without a lock. Counts are
// approximate; a lost one only delays a compile.
#include <atomic>
#include <cstdint>
#include <memory>

namespace gradloom {

class HotShapes {
 public:
  HotShapes() = default;
  ~HotShapes() { delete ready_.load(); }
  HotShapes(const HotShapes&) = delete;
  HotShapes& operator=(const HotShapes&) = delete;

  enum State : uint8_t { counting, ready, refused };

  // Counts a call of the shape and returns its count; the least called shape of its set is replaced by a new one.
  uint32_t count(uint64_t hash);
  uint32_t calls(uint64_t hash) const;
  State state(uint64_t hash) const;
  void set_state(uint64_t hash, State state);
  void halve();

  static constexpr uint32_t window = 1 << 16;  // calls between two halvings
  bool window_ends() { return (total_.fetch_add(1, std::memory_order_relaxed) + 1) % window == 0; }

 private:
  static constexpr size_t sets = 1024, ways = 4;
  struct Way {
    std::atomic<uint64_t> hash{0};
    std::atomic<uint32_t> calls{0};
    std::atomic<uint8_t> state{counting};
  };
  struct Table {
    Way way[sets][ways];
  };

  Way* find(uint64_t hash) const;

  std::atomic<Table*> ready_{nullptr};  // allocated at the first count
  std::atomic<uint32_t> total_{0};
};

}  // namespace gradloom
