#include "runtime/threads.h"

#include <pthread.h>
#include <tbb/blocked_range.h>
#include <tbb/global_control.h>
#include <tbb/parallel_for.h>
#include <tbb/partitioner.h>
#include <tbb/task_arena.h>

#include <algorithm>
#include <atomic>
#include <mutex>

#include "runtime/float_mode.h"
#include "runtime/usable_threads.h"

namespace gradloom {
namespace {

// In a child of fork oneTBB counts on workers that are not there, and may hold locks of theirs: parallel loops then run on the calling thread, without it.
std::atomic<bool> workers_gone{false};

void watch_forks() {
  static std::once_flag once;
  std::call_once(once, [] { pthread_atfork(nullptr, nullptr, [] { workers_gone.store(true, std::memory_order_relaxed); }); });
}

}  // namespace

struct Threads::Arena {
  // No larger than what oneTBB allows: asking for more makes it print a warning.
  explicit Arena(int threads)
      : arena(std::min<int>(threads, static_cast<int>(tbb::global_control::active_value(tbb::global_control::max_allowed_parallelism)))) {}
  tbb::task_arena arena;  // starts its threads on first use
};

Threads::Threads(int threads, ParallelFor pool)
    : count_(threads > 0 ? threads : usable_threads()), pool_(std::move(pool)) {
  if (!pool_ && count_ > 1) {
    watch_forks();
    arena_ = std::make_unique<Arena>(count_);
  }
}

Threads::~Threads() = default;

void Threads::parallel_for(int64_t n, Body body, void* env) const {
  if (n <= 0) return;
  if (n == 1 || count_ == 1) return body(env, 0, n);  // already in the mode
  if (pool_) {
    struct Call {
      Body body;
      void* env;
    } call{body, env};
    pool_(n, [&call](int64_t begin, int64_t end) {
      FloatMode mode;
      if (begin < end) call.body(call.env, begin, end);
    });
    return;
  }
  if (workers_gone.load(std::memory_order_relaxed)) return body(env, 0, n);
  // A few chunks a thread even out a core that is busy elsewhere.
  const int64_t grain = std::max<int64_t>(1, n / (int64_t{8} * count_));
  arena_->arena.execute([&] {
    tbb::parallel_for(
        tbb::blocked_range<int64_t>(0, n, grain),
        [body, env](const tbb::blocked_range<int64_t>& range) {
          FloatMode mode;
          body(env, range.begin(), range.end());
        },
        tbb::simple_partitioner());
  });
}

}  // namespace gradloom
