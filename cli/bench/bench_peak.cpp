#include "cli/bench/bench_peak.h"

#include <algorithm>

#include "cli/bench/bench_measure.h"

namespace gradloom::cli {

PeakTimes measure_beside_peak(const std::function<void()>& call, ProbeTeam& team, double seconds,
                              const std::function<void()>& probe) {
  constexpr double shortest_sample_ms = 0.5;
  constexpr int fewest_samples = 7, most_samples = 2000;
  constexpr int64_t peak_rounds = 200000;
  call();
  double begin = elapsed_ms();
  call();
  const int batch = std::max(1, static_cast<int>(shortest_sample_ms / std::max(1e-4, elapsed_ms() - begin)));
  const MultiplyAddLoop peak = multiply_add_loop();
  std::vector<double> call_ms, peak_ms;
  const auto samples = [&] { return static_cast<int>(call_ms.size()); };
  const double deadline = elapsed_ms() + seconds * 1000;
  while (samples() < most_samples && (samples() < fewest_samples || elapsed_ms() < deadline)) {
    peak_ms.push_back(team.multiply_add(peak, peak_rounds));
    if (probe) probe();
    call();  // untimed: reloads what the probes evicted
    begin = elapsed_ms();
    for (int b = 0; b < batch; ++b) call();
    call_ms.push_back((elapsed_ms() - begin) / batch);
  }
  const double flops =
      static_cast<double>(team.threads()) * static_cast<double>(peak.flops) * static_cast<double>(peak_rounds);
  const auto least = [](const std::vector<double>& ms) { return *std::min_element(ms.begin(), ms.end()); };
  return {median(call_ms), least(call_ms), flops / median(peak_ms) * 1e-6, flops / least(peak_ms) * 1e-6, samples()};
}

}  // namespace gradloom::cli
