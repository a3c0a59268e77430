#pragma once
// Kernels of one call, compiled and timed for a search. Each must give the bits of the first one.
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "runtime/build.h"
#include "runtime/core.h"
#include "runtime/tuning/search.h"

namespace gradloom {

// What is called, and on what memory.
struct TrialSite {
  std::string name;                                           // of the op or the nest
  std::function<BuiltKernel(const Scheduled& kernel)> build;  // throws ir::Refusal, Error
  std::function<int64_t(const KernelEntry& entry)> launch;    // returns the smallest bad position
  struct Written {
    char* data;
    int64_t bytes;
    bool read;  // its old contents count
  };
  std::vector<Written> written;
  // `launch` runs on the calling thread alone: then its CPU time counts, which others on the machine hardly disturb.
  bool one_thread = false;
  std::function<bool()> stopped = {};  // asked before each candidate, if given
};

class [[gnu::visibility("hidden")]] CallTrials final : public Trials {
 public:
  // `rules` is the kernel 0. Throws Error.
  CallTrials(const Core& core, TrialSite site, const BuiltKernel& rules, double seconds);

  int64_t bad_position() const { return bad_position_; }  // of the call; then the outputs are unspecified
  const std::vector<std::string>& wrong() const { return wrong_; }

  Made make(const Scheduled& kernel) override;
  Times race(int a, int b, bool thorough) override;
  bool time_left() override;

 private:
  struct Kernel {
    std::shared_ptr<const KernelEntry> entry;
    int calls = 1;  // of a sample
  };
  std::shared_ptr<const KernelEntry> compile(const BuiltKernel& built) const;
  int64_t run(const KernelEntry& entry);
  void add(std::shared_ptr<const KernelEntry> entry);
  bool differs(const KernelEntry& entry);
  double sample(const Kernel& kernel);

  const Core& core_;
  const TrialSite site_;
  const std::chrono::steady_clock::time_point deadline_;
  std::vector<std::string> before_, wanted_;  // contents of what is written
  int64_t bad_position_ = 0;
  std::vector<Kernel> kernels_;
  std::vector<Hash128> codes_;
  std::vector<std::string> wrong_;
};

}  // namespace gradloom
