#include "cli/bench/bench_roof.h"

#include <algorithm>
#include <cmath>

#include "cli/bench/bench_measure.h"

namespace gradloom::cli {

Contest::Contest(size_t loops) : samples_(loops) {
  for (size_t i = 0; i < loops; ++i) running_.push_back(i);
}

void Contest::narrow() {
  std::sort(running_.begin(), running_.end(),
            [&](size_t a, size_t b) { return median(samples_[a]) < median(samples_[b]); });
  running_.resize(std::min<size_t>(running_.size(), 2));
  for (auto& samples : samples_) samples.clear();
}

double Contest::best() const {
  double best = INFINITY;
  for (const size_t i : running_)
    if (!samples_[i].empty()) best = std::min(best, median(samples_[i]));
  return best;
}

double Contest::least() const {
  double least = INFINITY;
  for (const auto& samples : samples_)
    for (const double ms : samples) least = std::min(least, ms);
  return least;
}

Roof::Roof(ProbeTeam& team, bool warm)
    : team_(team),
      warm_(warm),
      reads_(read_loops()),
      writes_(write_loops()),
      read_(reads_.size()),
      write_(writes_.size()) {}

void Roof::select(const std::vector<Span>& reads, const std::vector<Span>& writes) {
  for (size_t i = 0; i < 2 * std::max(reads_.size(), writes_.size()); ++i) sample(reads, writes);
  read_.narrow();
  write_.narrow();
}

void Roof::sample(const std::vector<Span>& reads, const std::vector<Span>& writes) {
  const size_t r = read_.next(), w = write_.next();
  if (warm_) {
    team_.read(reads_[r], reads);
    team_.write(writes_[w], writes);
  }
  read_.add(r, team_.read(reads_[r], reads));
  write_.add(w, team_.write(writes_[w], writes));
}

}  // namespace gradloom::cli
