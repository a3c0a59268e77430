#include "runtime/generic_first/specialise.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <condition_variable>
#include <deque>
#include <mutex>

#include "runtime/diagnose/log.h"
#include "runtime/threads/start_thread.h"
#include "support/lasting.h"

namespace gradloom {
namespace {

constexpr int64_t stack_bytes = int64_t{8} << 20;
constexpr size_t most_jobs = 64;  // a rejected job is requested again when its call count has doubled

bool same(const KernelKey& a, const KernelKey& b) {
  return a.hash() == b.hash() && std::equal(a.words().begin(), a.words().end(), b.words().begin(), b.words().end());
}

RunOptions any_shape(const RunOptions& options) {
  return {.accumulate = options.accumulate,
          .strategy = options.strategy,
          .any_shape = true,
          .determinism = options.determinism,
          .outputs_wanted = options.outputs_wanted,
          .policy = options.policy};
}

// The strategy that serves every shape; null when the one requested by name does not.
const Strategy* generic_strategy(const PlannedCall& call, const ir::Target& target) {
  return find_serving(call.op, call.plan, call.options.strategy, target, serves_any_shape(call.plan));
}

// True at `after` calls, and again at each doubling.
bool asks(uint32_t calls, uint32_t after) { return calls % after == 0 && std::has_single_bit(calls / after); }

}  // namespace

Specialiser::Job::Job(const PlannedCall& call, Task task_in)
    : op(call.op),
      plan(call.plan),
      strategy(call.strategy),
      options(without_launch(call.options)),
      outputs_wanted(call.outputs_wanted),
      output_alignment(call.output_alignment),
      in_place(call.in_place),
      key(call),
      task(task_in) {}

Specialiser::Specialiser(KernelSource& source, const RuntimeOptions& options)
    : source_(source),
      after_(static_cast<uint32_t>(options.specialise_after)),
      most_live_(static_cast<size_t>(options.specialisations)),
      most_threads_(static_cast<size_t>(options.compile_threads)) {}

struct Specialiser::Team {
  const uint32_t generation = fork_generation();
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::unique_ptr<Job>> jobs;
  std::vector<uint64_t> queued;  // hashes of queued and running jobs
  std::vector<pthread_t> threads;
  bool stop = false;
};

Specialiser::Team& Specialiser::team() const {
  Team* now = team_.load(std::memory_order_acquire);
  while (!now || now->generation != fork_generation()) {
    auto fresh = std::make_unique<Team>();
    if (team_.compare_exchange_strong(now, fresh.get())) return *fresh.release();
  }
  return *now;
}

Specialiser::~Specialiser() {
  Team* const team = team_.load(std::memory_order_acquire);
  if (!team || team->generation != fork_generation()) return;
  {
    std::lock_guard lock(team->mutex);
    team->stop = true;
    team->jobs.clear();
  }
  team->changed.notify_all();
  for (const pthread_t thread : team->threads) pthread_join(thread, nullptr);
  delete team;
}

KernelHandle Specialiser::use_own(const PlannedCall& call, KernelHandle own) {
  own->calls.fetch_add(1, std::memory_order_relaxed);
  source_.answered(call, own);
  return own;
}

// After a call that the any-shape kernel served.
void Specialiser::count(const PlannedCall& call, uint64_t hash) {
  generic_calls_.add();
  const uint32_t calls = shapes_.count(hash);
  if (most_live_ > 0 && asks(calls, after_) && shapes_.state(hash) == HotShapes::counting)
    enqueue(call, Task::specialise);
  if (shapes_.window_ends()) decay();
}

KernelHandle Specialiser::kept_kernel(const PlannedCall& call, const KeptKernels& kept) {
  if (KernelHandle own = source_.cache().find_kept(kept.own)) return use_own(call, std::move(own));
  if (shapes_.state(kept.hash) == HotShapes::ready) return nullptr;
  KernelHandle generic = source_.cache().find_kept(kept.generic);
  if (!generic) return nullptr;
  source_.answered(call, generic);
  count(call, kept.hash);
  return generic;
}

KernelHandle Specialiser::kernel_for(const PlannedCall& call, KeptKernels& kept) {
  const KernelKey key(call);
  kept.hash = key.hash();
  const uint64_t generation = source_.cache().generation();
  KernelHandle own = source_.cache().find_in_front(key);
  if (!own && shapes_.state(key.hash()) == HotShapes::ready) {
    own = source_.cache().find(key);
    if (!own) shapes_.set_state(key.hash(), HotShapes::counting);  // evicted
  }
  if (own) {
    kept.own = {own, generation};
    return use_own(call, std::move(own));
  }
  const Strategy* strategy = generic_strategy(call, source_.target());
  if (!strategy) return source_.kernel_for(call);
  KernelHandle generic = generic_for(call, *strategy, kept);
  count(call, key.hash());
  return generic;
}

KernelHandle Specialiser::generic_for(const PlannedCall& call, const Strategy& strategy, KeptKernels& kept) {
  const RunOptions options = any_shape(call.options);
  const PlannedCall generic = call.with(strategy, options);
  const uint64_t generation = source_.cache().generation();
  if (KernelHandle entry = source_.cache().find(KernelKey(generic))) {
    kept.generic = {entry, generation};
    source_.answered(call, entry);
    return entry;
  }
  // Every strategy computes the same bits, so one already compiled saves this caller a compile.
  if (call.options.strategy.empty()) {
    for (const Strategy* other :
         serving_strategies(call.op, call.plan, source_.target(), serves_any_shape(call.plan))) {
      if (KernelHandle entry = source_.cache().find(KernelKey(call.with(*other, options)))) {
        enqueue(generic, Task::build_generic);
        source_.answered(call, entry);
        return entry;
      }
    }
  }
  return source_.kernel_for(generic);
}

// Without a thread, or memory for the job, the kernel for every shape goes on.
void Specialiser::enqueue(const PlannedCall& call, Task task) try {
  Team& team = this->team();
  auto job = std::make_unique<Job>(call, task);
  const uint64_t hash = job->key.hash();
  bool refused = false;
  {
    std::lock_guard lock(team.mutex);
    if (team.stop || team.jobs.size() >= most_jobs ||
        std::find(team.queued.begin(), team.queued.end(), hash) != team.queued.end())
      return;
    // A job that ended since the caller looked has left its state before it left the queue.
    if (task == Task::specialise && shapes_.state(hash) != HotShapes::counting) return;
    team.queued.reserve(team.queued.size() + 1);
    team.threads.reserve(most_threads_);
    if (team.threads.size() < std::min(most_threads_, team.queued.size() + 1)) {
      const std::optional<pthread_t> made = start_thread(stack_bytes, [this, &team] { work(team); });
      refused = !made;
      if (made) team.threads.push_back(*made);
    }
    if (!team.threads.empty()) {
      team.jobs.push_back(std::move(job));
      team.queued.push_back(hash);
    }
  }
  team.changed.notify_all();
  if (refused) log(LogLevel::warn, "no thread can be made to compile in the background");
} catch (const std::bad_alloc&) {
  log(LogLevel::warn, "no memory to compile in the background");
}

void Specialiser::work(Team& team) {
  // On Linux, of this thread only: callers take precedence.
  setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), 10);
  std::unique_lock lock(team.mutex);
  for (;;) {
    team.changed.wait(lock, [&] { return team.stop || !team.jobs.empty(); });
    if (team.stop) return;
    // No shape waits for its kernel until another one's is measured.
    auto next = std::find_if(team.jobs.begin(), team.jobs.end(), [](const auto& j) { return j->task != Task::tune; });
    if (next == team.jobs.end()) next = team.jobs.begin();
    std::unique_ptr<Job> job = std::move(*next);
    team.jobs.erase(next);
    lock.unlock();
    const bool specialised = run(team, *job);
    lock.lock();
    if (specialised && !team.stop) {
      job->task = Task::tune;
      team.jobs.push_back(std::move(job));  // it stays among those queued
    } else {
      std::erase(team.queued, job->key.hash());
    }
    team.changed.notify_all();
  }
}

// Whether the shape has a kernel of its own now.
bool Specialiser::run(Team& team, const Job& job) {
  try {
    switch (job.task) {
      case Task::build_generic:
        source_.kernel_for(job.call());
        return false;
      case Task::specialise:
        specialise(job);
        return shapes_.state(job.key.hash()) == HotShapes::ready;
      case Task::tune:
        tune(team, job);
        return false;
    }
  } catch (const std::exception& error) {
    if (process_ends()) return false;
    log(LogLevel::warn, "{}: a kernel was not made in the background: {}", job.op.schema().name, error.what());
  }
  return false;
}

void Specialiser::tune(Team& team, const Job& job) {
  const PlannedCall call = job.call();
  const std::shared_ptr<KernelEntry> better = source_.tuned_in_background(call, [&] {
    std::lock_guard lock(team.mutex);
    return team.stop;
  });
  if (!better) return;
  source_.cache().replace(job.key, better);
  std::lock_guard lock(mutex_);
  for (auto& [generic, live] : live_)
    for (Live& one : live)
      if (same(one.key, job.key)) one.entry = better;
}

void Specialiser::specialise(const Job& job) {
  const RunOptions options = any_shape(job.options);
  const PlannedCall call = job.call();
  const PlannedCall generic = call.with(*generic_strategy(call, source_.target()), options);
  const uint64_t group = KernelKey(generic).hash();
  if (!admit(group, job.key)) return;
  std::shared_ptr<KernelEntry> own;
  std::string why;
  try {
    own = source_.build(call);
    const KernelHandle other = source_.kernel_for(generic);
    if (const std::optional<std::string> difference = different_results(source_, *own, *other, call)) why = *difference;
  } catch (const std::exception& error) {
    if (process_ends()) throw;
    why = error.what();
  }
  if (!why.empty()) {
    log(LogLevel::error, "{}: the kernel for one shape is not used, the one for every shape goes on: {}",
        job.op.schema().name, why);
    own = nullptr;
  } else {
    source_.cache().put(job.key, own);
  }
  shapes_.set_state(job.key.hash(), own ? HotShapes::ready : HotShapes::refused);
  settle(group, job.key, own);
}

// Whether the shape may have a specialised kernel; if so, reserves a slot for it. When no slot is free, evicts the
// least called one if the shape was called far more often.
bool Specialiser::admit(uint64_t generic, const KernelKey& key) {
  std::lock_guard lock(mutex_);
  std::vector<Live>& live = live_[generic];
  const auto builds = [](const Live& one) { return one.builder == fork_generation() + 1; };
  std::erase_if(live, [&](const Live& one) { return !builds(one) && one.entry.expired(); });
  if (live.size() >= most_live_) {
    Live* least = nullptr;
    uint64_t least_calls = 0;
    for (Live& one : live) {
      const KernelHandle entry = one.entry.lock();
      if (!entry || builds(one) || same(one.key, key)) continue;
      const uint64_t calls = entry->calls.load(std::memory_order_relaxed);
      if (least && calls >= least_calls) continue;
      least = &one;
      least_calls = calls;
    }
    if (!least || shapes_.calls(key.hash()) < 2 * least_calls + after_) return false;
    source_.cache().remove(least->key);
    shapes_.set_state(least->key.hash(), HotShapes::counting);
    live.erase(live.begin() + (least - live.data()));
  }
  live.push_back({key, {}, fork_generation() + 1});
  return true;
}

void Specialiser::settle(uint64_t generic, const KernelKey& key, const KernelHandle& entry) {
  std::lock_guard lock(mutex_);
  ++(entry ? specialised_ : refused_);
  std::vector<Live>& live = live_[generic];
  for (size_t i = 0; i < live.size(); ++i) {
    if (!same(live[i].key, key)) continue;
    live[i].entry = entry;
    live[i].builder = 0;
    if (!entry) live.erase(live.begin() + static_cast<std::ptrdiff_t>(i));
    return;
  }
}

void Specialiser::decay() {
  shapes_.halve();
  std::lock_guard lock(mutex_);
  for (const auto& [generic, live] : live_) {
    for (const Live& one : live) {
      if (const KernelHandle entry = one.entry.lock())
        entry->calls.store(entry->calls.load(std::memory_order_relaxed) / 2, std::memory_order_relaxed);
    }
  }
}

void Specialiser::wait() const {
  Team& team = this->team();
  std::unique_lock lock(team.mutex);
  team.changed.wait(lock, [&] { return team.queued.empty(); });
}

void Specialiser::add_to(Stats& stats) const {
  stats.generic_calls = generic_calls_.total();
  std::lock_guard lock(mutex_);
  stats.specialised = specialised_;
  stats.specialise_refused = refused_;
  for (const auto& [generic, live] : live_) {
    for (const Live& one : live) stats.live_specialisations += !one.entry.expired();
  }
}

}  // namespace gradloom
