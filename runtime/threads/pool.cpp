#include "runtime/threads/pool.h"

#include <sched.h>
#include <time.h>

#include <algorithm>

#include "runtime/diagnose/log.h"
#include "runtime/threads/start_thread.h"
#include "support/fork.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace gradloom {
namespace {

constexpr int64_t stack_bytes = int64_t{2} << 20;
constexpr int64_t retry_after_ns = 1'000'000'000;

constinit Mutex shared_mutex;
constinit Pool* shared = nullptr;
constinit int users = 0;

int64_t now_ns() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * int64_t{1'000'000'000} + now.tv_nsec;
}

// Waiting for less time than it takes to sleep and be woken. False when it was in vain.
template <class Done>
bool spin_until(Done&& done) {
  for (int i = 0; i < 200; ++i) {
    if (done()) return true;
#if defined(__x86_64__)
    _mm_pause();
#endif
  }
  for (int i = 0; i < 20; ++i) {
    if (done()) return true;
    sched_yield();
  }
  return done();
}

}  // namespace

// Lies on the stack of the thread that runs it.
struct Pool::Loop {
  const int64_t n, grain;
  const Threads::Body body;
  void* const env;
  int places;  // for threads that may still join; under the pool's lock, as the links are
  Loop* older = nullptr;
  Loop* newer = nullptr;
  std::atomic<int> inside{0};  // threads that help
  std::atomic<int64_t> next{0};

  // Each piece is done once, by whoever takes it.
  void work() {
    const int64_t pieces = (n - 1) / grain + 1;
    for (int64_t piece; (piece = next.fetch_add(1, std::memory_order_relaxed)) < pieces;)
      body(env, piece * grain, piece == pieces - 1 ? n : (piece + 1) * grain);
  }
  bool pieces_left() const { return next.load(std::memory_order_relaxed) <= (n - 1) / grain; }
};

Pool::Pool() : generation_(fork_generation()) {}
bool Pool::of_this_process() const { return generation_ == fork_generation(); }

Pool* Pool::join(int helpers) {
  std::lock_guard lock(shared_mutex);
  if (!shared || !shared->of_this_process()) {  // the parent's is left alone: its threads hold what they held
    shared = new Pool;
    users = 0;
  }
  ++users;
  std::lock_guard inner(shared->mutex_);
  shared->most_ = std::max(shared->most_, static_cast<size_t>(helpers));
  return shared;
}

void Pool::leave(Pool* pool) noexcept {
  if (!pool->of_this_process()) return;
  {
    std::lock_guard lock(shared_mutex);
    if (--users > 0) return;
    shared = nullptr;
  }
  delete pool;
}

Pool::~Pool() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
    calls_.fetch_add(1, std::memory_order_relaxed);
  }
  called_.notify_all();
  for (const pthread_t thread : threads_) pthread_join(thread, nullptr);
}

// Wakes one thread, which wakes the next; makes those that are missing.
void Pool::call_helpers(std::unique_lock<std::mutex>& lock, const Loop& loop) {
  if (asleep_ > 0) {
    called_.notify_one();
    return;
  }
  if (threads_.size() >= most_ || retry_ns_ > now_ns()) return;
  bool refused = false;
  for (int wanted = loop.places; wanted > 0 && threads_.size() < most_; --wanted) {
    threads_.reserve(most_);
    const std::optional<pthread_t> made = start_thread(stack_bytes, [this] { help(); });
    refused = !made;
    if (refused) break;
    threads_.push_back(*made);
  }
  if (!refused) return;
  retry_ns_ = now_ns() + retry_after_ns;
  const size_t have = threads_.size();
  lock.unlock();
  log(LogLevel::warn, "no thread can be made; parallel loops run on the calling thread and {} others", have);
  lock.lock();
}

Pool::Loop* Pool::find_loop() {
  for (Loop* loop = newest_; loop; loop = loop->older) {
    if (loop->places > 0 && loop->pieces_left()) return loop;
  }
  return nullptr;
}

void Pool::run(int64_t n, int64_t grain, int helpers, Threads::Body body, void* env) {
  Loop loop{n, grain, body, env, static_cast<int>(std::min<int64_t>(helpers, (n - 1) / grain))};
  {
    std::unique_lock lock(mutex_);
    loop.older = newest_;
    if (newest_) newest_->newer = &loop;
    newest_ = &loop;
    calls_.fetch_add(1, std::memory_order_relaxed);
    try {
      call_helpers(lock, loop);
    } catch (const std::bad_alloc&) {  // of the list of threads: this one does the work
    }
  }
  loop.work();
  {
    std::lock_guard lock(mutex_);
    (loop.newer ? loop.newer->older : newest_) = loop.older;
    if (loop.older) loop.older->newer = loop.newer;
  }
  const auto alone = [&] { return loop.inside.load(std::memory_order_acquire) == 0; };
  if (spin_until(alone)) return;
  std::unique_lock lock(mutex_);
  finished_.wait(lock, alone);
}

void Pool::help() {
  std::unique_lock lock(mutex_);
  for (;;) {
    if (Loop* const loop = find_loop()) {
      --loop->places;
      loop->inside.fetch_add(1, std::memory_order_relaxed);
      if (asleep_ > 0 && find_loop()) called_.notify_one();
      lock.unlock();
      loop->work();
      lock.lock();
      // The loop's thread may go on at once: the loop is no more.
      if (loop->inside.fetch_sub(1, std::memory_order_release) == 1) finished_.notify_all();
      continue;
    }
    if (stop_) return;
    const uint32_t seen = calls_.load(std::memory_order_relaxed);
    lock.unlock();
    spin_until([&] { return calls_.load(std::memory_order_relaxed) != seen; });
    lock.lock();
    if (calls_.load(std::memory_order_relaxed) != seen || stop_) continue;
    ++asleep_;
    called_.wait(lock, [&] { return calls_.load(std::memory_order_relaxed) != seen || stop_; });
    --asleep_;
  }
}

}  // namespace gradloom
