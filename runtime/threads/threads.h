#pragma once
// Runs the bodies of parallel loops: on this thread, with the help of the library's own, or in an embedder's pool.
#include <atomic>

#include "gradloom/options.h"
#include "support/fork.h"

namespace gradloom {

class Pool;

class Threads {
 public:
  using Body = void (*)(void* env, int64_t begin, int64_t end);

  // threads <= 0: usable_threads(). `pool` replaces the library's own.
  Threads(int threads, ParallelFor pool);
  ~Threads();
  int count() const { return count_; }

  // Runs body(env, begin, end) over a partition of [0, n) in the library's floating-point mode; returns when all calls
  // are done. `pool`, of one call, replaces the others. The body does not throw; exceptions of the embedder's pool
  // propagate, and one that does not run every iteration once is an Error(invalid_argument).
  void parallel_for(int64_t n, Body body, void* env, const ParallelFor& pool = {}) const;

 private:
  Pool& team() const;

  int count_, helpers_;
  ParallelFor pool_;
  // Joined with the first loop, and again in a child of fork; none yet, with one thread, or with an embedder's pool.
  mutable std::atomic<Pool*> team_{nullptr};
  mutable Mutex mutex_;
};

}  // namespace gradloom
