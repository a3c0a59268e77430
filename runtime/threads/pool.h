#pragma once
// The threads that help with parallel loops, shared by all runtimes of the process. The thread that calls takes part in
// its loop, and does all of it where no thread can be made. They are joined with the last user: none is left when the
// library is unloaded. A child of fork makes a pool of its own.
#include <pthread.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <vector>

#include "runtime/threads/threads.h"

namespace gradloom {

class Pool {
 public:
  // The pool of this process. Every `join` needs a `leave`, unless the process is a child of the one that joined.
  // Throws std::bad_alloc.
  static Pool* join(int helpers);
  static void leave(Pool* pool) noexcept;
  bool of_this_process() const;

  // Runs body(env, begin, end) over a partition of [0, n) in pieces of `grain`, with at most `helpers` other threads.
  void run(int64_t n, int64_t grain, int helpers, Threads::Body body, void* env);

  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

 private:
  struct Loop;
  Pool();
  ~Pool();
  void call_helpers(std::unique_lock<std::mutex>& lock, const Loop& loop);
  Loop* find_loop();
  void help();

  const uint32_t generation_;
  std::mutex mutex_;
  std::condition_variable called_, finished_;
  std::atomic<uint32_t> calls_{0};  // loops so far: what an idle thread watches for a while before it sleeps
  std::vector<pthread_t> threads_;
  size_t most_ = 0;  // threads
  int asleep_ = 0;
  bool stop_ = false;
  int64_t retry_ns_ = 0;    // no thread is made before, since one could not be
  Loop* newest_ = nullptr;  // loops with pieces left
};

}  // namespace gradloom
