#pragma once
// The policy generic_first: any-shape kernels answer, shapes that come often get kernels of their own from background
// threads. Nothing here changes a bit of any result: both kernels add in one order, and a specialised one is compared
// on generated inputs before it is swapped in.
#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "runtime/cache/kernel_cache.h"
#include "runtime/generic_first/hot_shapes.h"
#include "support/counter.h"

namespace gradloom {

// What the specialiser needs of the runtime that it serves.
class KernelSource {
 public:
  virtual const ir::Target& target() const = 0;
  virtual KernelCache& cache() = 0;
  // The kernel of a call, built (or loaded) when there is none in memory; its report is this thread's last.
  virtual KernelHandle kernel_for(const PlannedCall& call) = 0;
  // Builds, or loads from disk; the cache in memory is neither asked nor filled.
  virtual std::shared_ptr<KernelEntry> build(const PlannedCall& call) = 0;
  // Notes what answered a call, for last_report.
  virtual void answered(const PlannedCall& call, const KernelHandle& entry) = 0;
  // Gives the smallest bad position.
  virtual int64_t launch(const KernelEntry& entry, void* const* buffers, const int64_t* scalars,
                         const LaunchOptions& options, const Threads& threads, Recycler& recycler) const = 0;

 protected:
  ~KernelSource() = default;
};

class Specialiser {
 public:
  Specialiser(KernelSource& source, const RuntimeOptions& options);
  ~Specialiser();  // the job under way is finished, the others are dropped

  // The call's own kernel once it is there, else the any-shape one, built now if no kernel for every shape serves the
  // call.
  KernelHandle kernel_for(const PlannedCall& call);
  void wait() const;  // until no job is left
  void add_to(Stats& stats) const;

 private:
  // A call that outlives its caller.
  struct Job {
    Job(const PlannedCall& call, bool specialise);
    PlannedCall call() const { return {op, plan, strategy, options, outputs_wanted, output_alignment}; }
    const Op& op;
    const Plan plan;
    const Strategy& strategy;
    const RunOptions options;
    const uint32_t outputs_wanted;
    const int64_t output_alignment;
    const KernelKey key;
    const bool specialise;  // else: the any-shape kernel
  };
  struct Live {
    KernelKey key;
    std::weak_ptr<const KernelEntry> entry;
    bool building = false;
  };

  KernelHandle generic_for(const PlannedCall& call, const Strategy& strategy);
  void enqueue(const PlannedCall& call, bool specialise);
  void work();
  void run(const Job& job);
  void specialise(const Job& job);
  bool admit(uint64_t generic, const KernelKey& key);
  void settle(uint64_t generic, const KernelKey& key, const KernelHandle& entry);
  void decay();
  void forget_threads_of_parent();

  KernelSource& source_;
  const uint32_t after_;
  const size_t most_live_, most_threads_;
  HotShapes shapes_;
  Counter generic_calls_;

  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  std::deque<std::unique_ptr<Job>> jobs_;
  std::vector<uint64_t> queued_;  // hashes of jobs waiting or under way
  std::vector<std::thread> threads_;
  int owner_ = 0;  // the process that started them
  bool stop_ = false;
  std::map<uint64_t, std::vector<Live>> live_;  // by the any-shape kernel's key
  int64_t specialised_ = 0, refused_ = 0;
};

// Runs both kernels of a call on the same generated inputs. Nothing when outputs and failed Checks are the same, else
// what differs.
std::optional<std::string> different_results(const KernelSource& source, const KernelEntry& own,
                                             const KernelEntry& generic, const PlannedCall& call);

}  // namespace gradloom
