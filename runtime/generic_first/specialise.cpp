#include "runtime/generic_first/specialise.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <system_error>

#include "runtime/diagnose/log.h"
#include "support/float_mode.h"

namespace gradloom {
namespace {

constexpr size_t most_jobs = 64;  // a rejected job is requested again when its call count has doubled

bool same(const KernelKey& a, const KernelKey& b) {
  return a.hash() == b.hash() && std::equal(a.words().begin(), a.words().end(), b.words().begin(), b.words().end());
}

RunOptions any_shape(RunOptions options) {
  options.any_shape = true;
  return options;
}

// The strategy that serves every shape; null when the one requested by name does not.
const Strategy* generic_strategy(const PlannedCall& call, const ir::Target& target) {
  return find_serving(call.op, call.plan, call.options.strategy, target, serves_any_shape(call.plan));
}

// True at `after` calls, and again at each doubling.
bool asks(uint32_t calls, uint32_t after) { return calls % after == 0 && std::has_single_bit(calls / after); }

}  // namespace

Specialiser::Job::Job(const PlannedCall& call, bool specialise_in)
    : op(call.op),
      plan(call.plan),
      strategy(call.strategy),
      options(call.options),
      outputs_wanted(call.outputs_wanted),
      output_alignment(call.output_alignment),
      key(call),
      specialise(specialise_in) {}

Specialiser::Specialiser(KernelSource& source, const RuntimeOptions& options)
    : source_(source),
      after_(static_cast<uint32_t>(options.specialise_after)),
      most_live_(static_cast<size_t>(options.specialisations)),
      most_threads_(static_cast<size_t>(options.compile_threads)) {}

// A forked child has none of its parent's threads.
void Specialiser::forget_threads_of_parent() {
  if (owner_ == getpid()) return;
  for (std::thread& thread : threads_) thread.detach();
  threads_.clear();
  queued_.clear();
  jobs_.clear();
  owner_ = getpid();
}

Specialiser::~Specialiser() {
  std::vector<std::thread> threads;
  {
    std::lock_guard lock(mutex_);
    forget_threads_of_parent();
    stop_ = true;
    jobs_.clear();
    threads.swap(threads_);
  }
  changed_.notify_all();
  for (std::thread& thread : threads) thread.join();
}

KernelHandle Specialiser::kernel_for(const PlannedCall& call) {
  const KernelKey key(call);
  KernelHandle own = source_.cache().find_in_front(key);
  if (!own && shapes_.state(key.hash()) == HotShapes::ready) {
    own = source_.cache().find(key);
    if (!own) shapes_.set_state(key.hash(), HotShapes::counting);  // evicted
  }
  if (own) {
    own->calls.fetch_add(1, std::memory_order_relaxed);
    source_.answered(call, own);
    return own;
  }
  const Strategy* strategy = generic_strategy(call, source_.target());
  if (!strategy) return source_.kernel_for(call);
  generic_calls_.add();
  const uint32_t calls = shapes_.count(key.hash());
  KernelHandle generic = generic_for(call, *strategy);
  if (most_live_ > 0 && asks(calls, after_) && shapes_.state(key.hash()) == HotShapes::counting) enqueue(call, true);
  if (shapes_.window_ends()) decay();
  return generic;
}

KernelHandle Specialiser::generic_for(const PlannedCall& call, const Strategy& strategy) {
  const RunOptions options = any_shape(call.options);
  const PlannedCall generic = call.with(strategy, options);
  if (KernelHandle entry = source_.cache().find(KernelKey(generic))) {
    source_.answered(call, entry);
    return entry;
  }
  // Every strategy computes the same bits, so one already compiled saves this caller a compile.
  if (call.options.strategy.empty()) {
    for (const Strategy* other :
         serving_strategies(call.op, call.plan, source_.target(), serves_any_shape(call.plan))) {
      if (KernelHandle entry = source_.cache().find(KernelKey(call.with(*other, options)))) {
        enqueue(generic, false);
        source_.answered(call, entry);
        return entry;
      }
    }
  }
  return source_.kernel_for(generic);
}

void Specialiser::enqueue(const PlannedCall& call, bool specialise) {
  auto job = std::make_unique<Job>(call, specialise);
  {
    std::lock_guard lock(mutex_);
    forget_threads_of_parent();
    const uint64_t hash = job->key.hash();
    if (stop_ || jobs_.size() >= most_jobs || std::find(queued_.begin(), queued_.end(), hash) != queued_.end()) return;
    if (threads_.size() < std::min(most_threads_, queued_.size() + 1)) {
      try {
        threads_.emplace_back([this] { work(); });
      } catch (const std::system_error& error) {
        log(LogLevel::warn, "no thread to compile in the background: {}", error.what());
        if (threads_.empty()) return;
      }
    }
    queued_.push_back(hash);
    jobs_.push_back(std::move(job));
  }
  changed_.notify_all();
}

void Specialiser::work() {
  // On Linux, of this thread only: callers take precedence.
  setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), 10);
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return stop_ || !jobs_.empty(); });
    if (stop_) return;
    const std::unique_ptr<Job> job = std::move(jobs_.front());
    jobs_.pop_front();
    lock.unlock();
    run(*job);
    lock.lock();
    std::erase(queued_, job->key.hash());
    changed_.notify_all();
  }
}

void Specialiser::run(const Job& job) {
  FloatMode mode;
  try {
    if (job.specialise) {
      specialise(job);
    } else {
      source_.kernel_for(job.call());
    }
  } catch (const std::exception& error) {
    log(LogLevel::warn, "{}: a kernel was not made in the background: {}", job.op.schema().name, error.what());
  }
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
  std::erase_if(live, [](const Live& one) { return !one.building && one.entry.expired(); });
  if (live.size() >= most_live_) {
    Live* least = nullptr;
    uint64_t least_calls = 0;
    for (Live& one : live) {
      const KernelHandle entry = one.entry.lock();
      if (!entry || one.building || same(one.key, key)) continue;
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
  live.push_back({key, {}, true});
  return true;
}

void Specialiser::settle(uint64_t generic, const KernelKey& key, const KernelHandle& entry) {
  std::lock_guard lock(mutex_);
  ++(entry ? specialised_ : refused_);
  std::vector<Live>& live = live_[generic];
  for (size_t i = 0; i < live.size(); ++i) {
    if (!same(live[i].key, key)) continue;
    live[i].entry = entry;
    live[i].building = false;
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
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return queued_.empty() || owner_ != getpid(); });
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
