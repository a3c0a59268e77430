#include "runtime/trials.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <time.h>

#include <algorithm>
#include <cstring>

#include "codegen/abi.h"
#include "gradloom/refusal.h"
#include "gradloom/text.h"
#include "runtime/diagnose/log.h"

namespace gradloom {
namespace {

constexpr double sample_ms = 0.5, hopeless = 2;  // a sample's least length; times as long as the other
struct Rounds {
  int least, most;
  double ms;  // of all of them, about
};
constexpr Rounds quick{4, 12, 250}, thorough_ones{7, 40, 1000};
constexpr char unwritten = '\x7f';  // what an output holds that the kernel does not write

double clock_ms(clockid_t clock) {
  timespec now;
  clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) * 1e3 + static_cast<double>(now.tv_nsec) * 1e-6;
}

Hash128 code_of(const BuiltKernel& built) { return hash128(ir::print(built.lowered)); }

}  // namespace

CallTrials::CallTrials(const Core& core, TrialSite site, const BuiltKernel& rules, double seconds)
    : core_(core),
      site_(std::move(site)),
      deadline_(std::chrono::steady_clock::now() + std::chrono::duration_cast<std::chrono::steady_clock::duration>(
                                                       std::chrono::duration<double>(seconds))) {
  for (const TrialSite::Written& w : site_.written)
    before_.push_back(w.read ? std::string(w.data, static_cast<size_t>(w.bytes)) : std::string());
  const std::shared_ptr<const KernelEntry> entry = compile(rules);
  bad_position_ = run(*entry);
  if (bad_position_ != no_bad_position) return;
  for (const TrialSite::Written& w : site_.written) wanted_.emplace_back(w.data, static_cast<size_t>(w.bytes));
  codes_.push_back(code_of(rules));
  add(entry);
}

std::shared_ptr<const KernelEntry> CallTrials::compile(const BuiltKernel& built) const {
  return core_.compile_apart(built, site_.name);
}

// On what the written memory held at first.
int64_t CallTrials::run(const KernelEntry& entry) {
  for (size_t i = 0; i < site_.written.size(); ++i) {
    const TrialSite::Written& w = site_.written[i];
    if (w.bytes == 0) continue;
    if (w.read)
      std::memcpy(w.data, before_[i].data(), static_cast<size_t>(w.bytes));
    else
      std::memset(w.data, unwritten, static_cast<size_t>(w.bytes));
  }
  return site_.launch(entry);
}

bool CallTrials::differs(const KernelEntry& entry) {
  if (run(entry) != no_bad_position) return true;
  for (size_t i = 0; i < site_.written.size(); ++i)
    if (std::memcmp(site_.written[i].data, wanted_[i].data(), wanted_[i].size()) != 0) return true;
  return false;
}

void CallTrials::add(std::shared_ptr<const KernelEntry> entry) {
  kernels_.push_back({std::move(entry), 1});
  Kernel& kernel = kernels_.back();
  const double once = sample(kernel);
  kernel.calls = static_cast<int>(std::clamp(sample_ms / std::max(once, 1e-5), 1.0, 1e5));
}

Trials::Made CallTrials::make(const Scheduled& kernel) {
  std::shared_ptr<const KernelEntry> entry;
  try {
    const BuiltKernel built = site_.build(kernel);
    const Hash128 code = code_of(built);
    if (std::find(codes_.begin(), codes_.end(), code) != codes_.end()) return Made::repeated;
    codes_.push_back(code);
    entry = compile(built);
  } catch (const Error& error) {
    // A trace that names loops as they are no longer, a schedule that is refused, one too large to compile.
    log(LogLevel::debug, "{}: a candidate of strategy {} is dropped: {}", site_.name, kernel.strategy, error.what());
    if (error.code() != ErrorCode::internal) return Made::refused;
    wrong_.push_back(
        fmt::format("strategy {} with {}: {}", kernel.strategy, fmt::join(kernel.trace, "; "), error.what()));
    return Made::wrong;
  }
  if (differs(*entry)) {
    wrong_.push_back(
        fmt::format("strategy {} with {}: its outputs differ", kernel.strategy, fmt::join(kernel.trace, "; ")));
    log(LogLevel::error, "{}: a kernel with other bits than the rules' is not used: {}", site_.name, wrong_.back());
    return Made::wrong;
  }
  add(std::move(entry));
  return Made::ready;
}

double CallTrials::sample(const Kernel& kernel) {
  const clockid_t clock = site_.one_thread ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC;
  const double start = clock_ms(clock);
  for (int i = 0; i < kernel.calls; ++i) site_.launch(*kernel.entry);
  return (clock_ms(clock) - start) / kernel.calls;
}

Trials::Times CallTrials::race(int a, int b, bool thorough) {
  const Rounds& rounds = thorough ? thorough_ones : quick;
  const Kernel &first = kernels_[static_cast<size_t>(a)], &second = kernels_[static_cast<size_t>(b)];
  Times least{sample(first), sample(second)};
  const auto start = std::chrono::steady_clock::now();
  for (int round = 0; round < rounds.most; ++round) {
    if (!thorough && least.b_ms > hopeless * least.a_ms) break;
    if (round >= rounds.least && milliseconds_since(start) > rounds.ms) break;
    // Either one begins as often as the other.
    if (round % 2 == 0) least.a_ms = std::min(least.a_ms, sample(first));
    least.b_ms = std::min(least.b_ms, sample(second));
    if (round % 2 != 0) least.a_ms = std::min(least.a_ms, sample(first));
  }
  return least;
}

bool CallTrials::time_left() {
  return std::chrono::steady_clock::now() < deadline_ && !(site_.stopped && site_.stopped());
}

}  // namespace gradloom
