#include "runtime/threads/threads.h"

#include <dlfcn.h>
#include <pthread.h>
#include <tbb/blocked_range.h>
#include <tbb/global_control.h>
#include <tbb/parallel_for.h>
#include <tbb/partitioner.h>
#include <tbb/task_arena.h>
#include <tbb/task_scheduler_observer.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <optional>
#include <thread>

#ifdef __SANITIZE_THREAD__
#include <sanitizer/tsan_interface.h>
#endif

#include "runtime/threads/usable_threads.h"
#include "support/float_mode.h"

namespace gradloom {
namespace {

// In a forked child oneTBB counts on workers that do not exist, and may hold locks of theirs: parallel loops then run
// on the calling thread, without it.
std::atomic<bool> workers_gone{false};

void watch_forks() {
  static std::once_flag once;
  std::call_once(once,
                 [] { pthread_atfork(nullptr, nullptr, [] { workers_gone.store(true, std::memory_order_relaxed); }); });
}

// Pins the library that oneTBB's threads execute, whatever is unloaded.
void keep_tbb() {
  Dl_info where;
  if (dladdr(reinterpret_cast<void*>(&tbb::detail::r1::max_concurrency), &where) == 0) return;
  dlopen(where.dli_fname, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE);
}

// oneTBB's threads end with the last arena of this library, so that none of them runs when it is unloaded. They stay,
// asleep, while other threads of the process are still attached to oneTBB: threads that used it, or were in a call
// here, and are still running.
class ArenaCount {
 public:
  void add() {
    std::lock_guard lock(mutex_);
    ++arenas_;
  }
  void remove() noexcept {
    std::lock_guard lock(mutex_);
    if (--arenas_ > 0) return;
    tbb::task_scheduler_handle threads{tbb::attach{}};
    if (!tbb::finalize(threads, std::nothrow)) keep_tbb();
  }

 private:
  std::mutex mutex_;
  int arenas_ = 0;
};
ArenaCount& arena_count() {
  static ArenaCount instance;
  return instance;
}

// Workers in the arena. A worker that has finished its part of a loop is still in this library's code for a moment
// after the loop has returned.
class Inside : public tbb::task_scheduler_observer {
 public:
  explicit Inside(tbb::task_arena& arena) : task_scheduler_observer(arena) { observe(true); }
  void on_scheduler_entry(bool worker) override { workers_.fetch_add(worker, std::memory_order_relaxed); }
  void on_scheduler_exit(bool worker) override { workers_.fetch_sub(worker, std::memory_order_release); }
  void leave() {
    while (workers_.load(std::memory_order_acquire) > 0) std::this_thread::yield();
    observe(false);
  }

 private:
  std::atomic<int> workers_{0};
};

// Reports oneTBB's synchronisation to the thread sanitizer, which does not see it: everything before a `give` happens
// before everything after a `take`.
struct HandOver {
#ifdef __SANITIZE_THREAD__
  void give() { __tsan_release(this); }
  void take() { __tsan_acquire(this); }
#else
  void give() {}
  void take() {}
#endif
};

}  // namespace

struct Threads::Arena {
  // Limited to what oneTBB allows: requesting more makes it print a warning.
  explicit Arena(int threads)
      : arena(std::min<int>(threads, static_cast<int>(tbb::global_control::active_value(
                                         tbb::global_control::max_allowed_parallelism)))) {}
  ~Arena() {
    if (!inside) return;
    inside->leave();
    arena.terminate();
    arena_count().remove();
  }
  void start() {
    std::call_once(started, [this] {
      inside.emplace(arena);
      arena_count().add();
    });
  }
  tbb::task_arena arena;
  std::once_flag started;
  std::optional<Inside> inside;

  // Arenas of the parent process, whose workers do not exist here: they are not touched, and stay reachable.
  static void abandon(Arena* arena) {
    static std::atomic<Arena*> all{nullptr};
    arena->next = all.load(std::memory_order_relaxed);
    while (!all.compare_exchange_weak(arena->next, arena)) {
    }
  }
  Arena* next = nullptr;
};

Threads::Threads(int threads, ParallelFor pool)
    : count_(threads > 0 ? threads : usable_threads()), pool_(std::move(pool)) {
  if (!pool_ && count_ > 1) {
    watch_forks();
    arena_ = std::make_unique<Arena>(count_);
  }
}

Threads::~Threads() {
  if (arena_ && workers_gone.load(std::memory_order_relaxed)) Arena::abandon(arena_.release());
}

void Threads::parallel_for(int64_t n, Body body, void* env) const {
  if (n <= 0) return;
  if (n == 1 || count_ == 1) return body(env, 0, n);  // the mode is already set
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
  // A few chunks per thread balance the load when a core is busy elsewhere.
  const int64_t grain = std::max<int64_t>(1, n / (int64_t{8} * count_));
  arena_->start();
  HandOver to_workers, to_caller;
  to_workers.give();
  arena_->arena.execute([&] {
    tbb::parallel_for(
        tbb::blocked_range<int64_t>(0, n, grain),
        [body, env, &to_workers, &to_caller](const tbb::blocked_range<int64_t>& range) {
          to_workers.take();
          FloatMode mode;
          body(env, range.begin(), range.end());
          to_caller.give();
        },
        tbb::simple_partitioner());
  });
  to_caller.take();
}

}  // namespace gradloom
