// The library's own threads: each piece of a loop is done once, whoever calls, from within a loop too, at any width.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "runtime/threads/threads.h"

namespace gradloom {
namespace {

struct Counts {
  explicit Counts(int64_t n) : of(static_cast<size_t>(n)) {}
  bool all(int wanted) const {
    for (const std::atomic<int>& count : of)
      if (count != wanted) return false;
    return true;
  }
  std::vector<std::atomic<int>> of;
};

void count(void* counts, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; ++i) ++static_cast<Counts*>(counts)->of[static_cast<size_t>(i)];
}

TEST(Pool, EachPieceIsDoneOnce) {
  for (const int threads : {1, 2, 3, 8}) {
    const Threads team(threads, nullptr);
    for (const int64_t n : {0, 1, 2, 7, 16, 17, 1000, 4097}) {
      Counts counts(n);
      for (int loop = 0; loop < 50; ++loop) team.parallel_for(n, count, &counts);
      EXPECT_TRUE(counts.all(50)) << threads << " threads, " << n;
    }
  }
}

TEST(Pool, ServesCallersAtATime) {
  const Threads two(2, nullptr), four(4, nullptr);
  std::vector<std::thread> callers;
  for (int caller = 0; caller < 6; ++caller) {
    callers.emplace_back([&two, &four, caller] {
      for (int loop = 0; loop < 300; ++loop) {
        Counts counts(100);
        (caller % 2 ? two : four).parallel_for(100, count, &counts);
        EXPECT_TRUE(counts.all(1));
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
}

TEST(Pool, LoopsMayNest) {
  struct Nest {
    Threads team{4, nullptr};
    Counts counts{32};
  } nest;
  const auto outer = [](void* given, int64_t begin, int64_t end) {
    Nest& nest = *static_cast<Nest*>(given);
    for (int64_t i = begin; i < end; ++i) nest.team.parallel_for(32, count, &nest.counts);
  };
  nest.team.parallel_for(20, outer, &nest);
  EXPECT_TRUE(nest.counts.all(20));
}

// With the last user the threads are gone, and the next one makes others.
TEST(Pool, ComesAndGoes) {
  for (int round = 0; round < 20; ++round) {
    const Threads team(4, nullptr);
    Counts counts(64);
    team.parallel_for(64, count, &counts);
    EXPECT_TRUE(counts.all(1));
  }
}

}  // namespace
}  // namespace gradloom
