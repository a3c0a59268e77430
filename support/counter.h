#pragma once
// A counter that many threads increment without sharing a cache line.
#include <atomic>
#include <cstdint>

namespace gradloom {

class Counter {
 public:
  void add() { stripes_[stripe()].value.fetch_add(1, std::memory_order_relaxed); }
  int64_t total() const {
    int64_t sum = 0;
    for (const Stripe& s : stripes_) sum += s.value.load(std::memory_order_relaxed);
    return sum;
  }

 private:
  static constexpr unsigned count = 16;
  struct alignas(64) Stripe {
    std::atomic<int64_t> value{0};
  };
  static unsigned stripe() {
    static std::atomic<unsigned> next{0};
    thread_local const unsigned mine = next.fetch_add(1, std::memory_order_relaxed) % count;
    return mine;
  }
  Stripe stripes_[count];
};

}  // namespace gradloom
