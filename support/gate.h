#pragma once
// Sections of code that any thread may enter at any time, and a thread that keeps others out and waits until none is
// inside. Entering costs one uncontended read-modify-write.
#include <time.h>

#include <atomic>
#include <chrono>

#include "support/no_cancel.h"

namespace gradloom {

class Gate {
 public:
  // False when it is closed. Every true needs a `leave` on the same thread.
  bool enter() noexcept {
    std::atomic<int>& inside = stripes_[stripe()].inside;
    // Sequentially consistent, as are the store and the loads of `close`: either that sees this thread inside, or this
    // thread sees the gate closed.
    inside.fetch_add(1);
    if (!closed_.load()) return true;
    inside.fetch_sub(1);
    return false;
  }
  void leave() noexcept { stripes_[stripe()].inside.fetch_sub(1, std::memory_order_release); }

  // Keeps others out, and waits until no thread is inside but `own` times the calling one. False when that takes longer
  // than `most`; the gate stays closed.
  bool close(int own, std::chrono::milliseconds most) noexcept {
    const NoCancel no_cancel;
    closed_.store(1);
    const auto start = std::chrono::steady_clock::now();
    while (inside() > own) {
      if (std::chrono::steady_clock::now() - start > most) return false;
      const timespec pause{0, 50'000};
      nanosleep(&pause, nullptr);
    }
    return true;
  }
  void open() noexcept {
    closed_.store(0);
    closed_.notify_all();
  }
  void wait_until_open() noexcept { closed_.wait(1); }
  bool closed() const noexcept { return closed_.load() != 0; }

 private:
  static constexpr unsigned count = 16;
  struct alignas(64) Stripe {
    std::atomic<int> inside{0};
  };
  static unsigned stripe() {
    static constinit std::atomic<unsigned> next{0};
    thread_local constinit unsigned mine = count;
    if (mine == count) mine = next.fetch_add(1, std::memory_order_relaxed) % count;
    return mine;
  }
  int inside() const {
    int sum = 0;
    for (const Stripe& each : stripes_) sum += each.inside.load();
    return sum;
  }
  Stripe stripes_[count];
  std::atomic<int> closed_{0};
};

}  // namespace gradloom
