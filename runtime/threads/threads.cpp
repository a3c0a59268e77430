#include "runtime/threads/threads.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <thread>

#include "runtime/threads/pool.h"
#include "runtime/threads/usable_threads.h"
#include "support/float_mode.h"

namespace gradloom {
namespace {

void run_in_pool(const ParallelFor& pool, int64_t n, Threads::Body body, void* env) {
  struct Call {
    const int64_t n;
    const Threads::Body body;
    void* const env;
    std::atomic<int64_t> ran{0};
    std::atomic<bool> beyond{false};
  } call{n, body, env};
  pool(n, [&call](int64_t begin, int64_t end) {
    if (begin < 0 || end > call.n) call.beyond.store(true, std::memory_order_relaxed);
    if (begin < 0 || end > call.n || begin >= end) return;
    FloatMode mode;
    call.body(call.env, begin, end);
    call.ran.fetch_add(end - begin, std::memory_order_relaxed);
  });
  if (call.beyond || call.ran != n)
    throw Error(ErrorCode::invalid_argument,
                fmt::format("parallel_for ran {} iterations of a loop of {}{}; each must run once", call.ran.load(), n,
                            call.beyond ? " and asked for some beyond it" : ""));
}

}  // namespace

// No more helpers than the machine runs at once.
Threads::Threads(int threads, ParallelFor pool)
    : count_(threads > 0 ? threads : usable_threads()),
      helpers_(std::min<int>(count_, static_cast<int>(std::max(1u, std::thread::hardware_concurrency()))) - 1),
      pool_(std::move(pool)) {}

Threads::~Threads() {
  if (Pool* const team = team_.load(std::memory_order_acquire)) Pool::leave(team);
}

Pool& Threads::team() const {
  Pool* team = team_.load(std::memory_order_acquire);
  if (team && team->of_this_process()) return *team;
  std::lock_guard lock(mutex_);
  team = team_.load(std::memory_order_acquire);
  if (!team || !team->of_this_process()) team_.store(team = Pool::join(helpers_), std::memory_order_release);
  return *team;
}

void Threads::parallel_for(int64_t n, Body body, void* env, const ParallelFor& pool) const {
  if (n <= 0) return;
  if (n == 1 || count_ == 1) return body(env, 0, n);  // the mode is already set
  if (pool) return run_in_pool(pool, n, body, env);
  if (pool_) return run_in_pool(pool_, n, body, env);
  if (helpers_ == 0) return body(env, 0, n);
  // A few pieces per thread balance the load when a core is busy elsewhere.
  team().run(n, std::max<int64_t>(1, n / (int64_t{8} * count_)), helpers_, body, env);
}

}  // namespace gradloom
