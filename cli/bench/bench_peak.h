#pragma once
// Times a call against the multiply-add peak: samples of the call and of the peak alternate.
#include <functional>
#include <string>
#include <vector>

#include "cli/bench/bench_probe.h"

namespace gradloom::cli {

struct PeakTimes {
  double median_ms = 0, min_ms = 0;
  double peak_gflops = 0, best_peak_gflops = 0;  // of all the team's threads together: the median, and the best
  int samples = 0;
};
// `probe`, when given, also runs before each sample; what it evicts is reloaded before the call is timed.
PeakTimes measure_beside_peak(const std::function<void()>& call, ProbeTeam& team, double seconds,
                              const std::function<void()>& probe = {});

// The cases with these names, all of them for `group`; empty when a name matches none.
template <class Case>
std::vector<const Case*> chosen_of(const std::vector<Case>& cases, const std::string& group,
                                   const std::vector<std::string>& names) {
  std::vector<const Case*> chosen;
  for (const std::string& name : names) {
    const size_t before = chosen.size();
    for (const Case& c : cases)
      if (name == group || name == c.name) chosen.push_back(&c);
    if (chosen.size() == before) return {};
  }
  return chosen;
}

}  // namespace gradloom::cli
