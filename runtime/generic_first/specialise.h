#pragma once
// The policy generic_first: any-shape kernels serve at first, and background threads compile specialised kernels for
// shapes that are called often. No result bit depends on it: both kernels add in the same order, and a specialised one
// is compared on generated inputs before it is swapped in.
#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "runtime/cache/kernel_cache.h"
#include "runtime/generic_first/hot_shapes.h"
#include "support/counter.h"
#include "support/fork.h"

namespace gradloom {

// The specialiser's interface to its runtime.
class KernelSource {
 public:
  virtual const ir::Target& target() const = 0;
  virtual KernelCache& cache() = 0;
  // The kernel of a call, built (or loaded) on a miss in memory; its report becomes this thread's last.
  virtual KernelHandle kernel_for(const PlannedCall& call) = 0;
  // Builds, or loads from disk; bypasses the in-memory cache.
  virtual std::shared_ptr<KernelEntry> build(const PlannedCall& call) = 0;
  // A faster kernel than `build`'s for the call, found by measuring; null where there is none, or that is not asked
  // for. Ends early once `stopped`.
  virtual std::shared_ptr<KernelEntry> tuned_in_background(const PlannedCall& call,
                                                           const std::function<bool()>& stopped) = 0;
  // Records which kernel served a call, for last_report.
  virtual void answered(const PlannedCall& call, const KernelHandle& entry) = 0;
  // Returns the smallest bad position.
  virtual int64_t launch(const KernelEntry& entry, void* const* buffers, const int64_t* scalars,
                         const LaunchOptions& options, const Threads& threads, Recycler& recycler) const = 0;

 protected:
  ~KernelSource() = default;
};

// The kernels that served a call, so that the next such call builds no key.
struct KeptKernels {
  uint64_t hash = 0;               // of the key of `own`
  KernelCache::Kept own, generic;  // specialised; of every shape
};

class Specialiser {
 public:
  Specialiser(KernelSource& source, const RuntimeOptions& options);
  ~Specialiser();  // finishes the running job and drops the others

  // The call's specialised kernel if it is ready, else the any-shape one, built now if no kernel for every shape serves
  // the call. It is kept for kept_kernel.
  KernelHandle kernel_for(const PlannedCall& call, KeptKernels& kept);
  // The same for a call like the one that `kept` is of; null when another kernel is to serve.
  KernelHandle kept_kernel(const PlannedCall& call, const KeptKernels& kept);
  void wait() const;  // until no job is queued or running
  void add_to(Stats& stats) const;

 private:
  enum class Task : uint8_t { build_generic, specialise, tune };
  // A copy of a call that outlives its caller.
  struct Job {
    Job(const PlannedCall& call, Task task);
    PlannedCall call() const {
      return {op, plan, strategy, options, outputs_wanted, output_alignment, nullptr, in_place};
    }
    const Op& op;
    const Plan plan;
    const Strategy& strategy;
    const RunOptions options;
    const uint32_t outputs_wanted;
    const int64_t output_alignment;
    const uint32_t in_place;
    const KernelKey key;
    Task task;
  };
  // The threads, and what they have to do.
  struct Team;
  struct Live {
    KernelKey key;
    std::weak_ptr<const KernelEntry> entry;
    uint32_t builder = 0;  // 1 more than the generation of forks in which it is being built; 0: it is not
  };

  KernelHandle use_own(const PlannedCall& call, KernelHandle own);
  void count(const PlannedCall& call, uint64_t hash);
  KernelHandle generic_for(const PlannedCall& call, const Strategy& strategy, KeptKernels& kept);
  void enqueue(const PlannedCall& call, Task task);
  void work(Team& team);
  bool run(Team& team, const Job& job);
  void specialise(const Job& job);
  void tune(Team& team, const Job& job);
  bool admit(uint64_t generic, const KernelKey& key);
  void settle(uint64_t generic, const KernelKey& key, const KernelHandle& entry);
  void decay();
  Team& team() const;

  KernelSource& source_;
  const uint32_t after_;
  const size_t most_live_, most_threads_;
  HotShapes shapes_;
  Counter generic_calls_;

  // A child of fork lacks its parent's threads, and leaves their team as they left it.
  mutable std::atomic<Team*> team_{nullptr};
  mutable Mutex mutex_;
  std::map<uint64_t, std::vector<Live>> live_;  // by the any-shape kernel's key
  int64_t specialised_ = 0, refused_ = 0;
};

// Runs both kernels of a call on the same generated inputs. Nothing when outputs and failed Checks agree, else a
// description of the difference.
std::optional<std::string> different_results(const KernelSource& source, const KernelEntry& own,
                                             const KernelEntry& generic, const PlannedCall& call);

}  // namespace gradloom
