#pragma once
// What is timed beside the multiply-add peak: a sample of the call, a sample of the peak, ...
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
// `probe`, when given, is run before each sample as well; what it displaces is brought back before the call is timed.
PeakTimes measure_beside_peak(const std::function<void()>& call, ProbeTeam& team, double seconds,
                              const std::function<void()>& probe = {});

// The cases of these names, all for `group`; empty when a name is none of them.
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
