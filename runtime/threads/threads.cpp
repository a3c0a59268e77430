#include "runtime/threads/threads.h"

#include <algorithm>
#include <mutex>
#include <thread>

#include "runtime/threads/pool.h"
#include "runtime/threads/usable_threads.h"
#include "support/float_mode.h"

namespace gradloom {

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
  if (helpers_ == 0) return body(env, 0, n);
  // A few pieces per thread balance the load when a core is busy elsewhere.
  team().run(n, std::max<int64_t>(1, n / (int64_t{8} * count_)), helpers_, body, env);
}

}  // namespace gradloom
