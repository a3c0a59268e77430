#pragma once
// Runs the bodies of parallel loops: on this thread, in a oneTBB arena, or in an embedder's pool.
#include <memory>

#include "gradloom/options.h"

namespace gradloom {

class Threads {
 public:
  using Body = void (*)(void* env, int64_t begin, int64_t end);

  // threads <= 0: usable_threads(). `pool` replaces oneTBB.
  Threads(int threads, ParallelFor pool);
  ~Threads();
  int count() const { return count_; }

  // Runs body(env, begin, end) over a partition of [0, n) in the library's floating-point mode; returns when all calls
  // are done. The body does not throw; exceptions of the embedder's pool propagate.
  void parallel_for(int64_t n, Body body, void* env) const;

 private:
  struct Arena;
  int count_;
  ParallelFor pool_;
  std::unique_ptr<Arena> arena_;  // with more than one thread and no pool
};

}  // namespace gradloom
