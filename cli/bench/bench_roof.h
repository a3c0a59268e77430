#pragma once
// The roof of one measurement: the time to read some memory once and to write other memory once, at the best speed that
// this machine shows between the samples of what is measured.
#include <vector>

#include "cli/bench/bench_probe.h"

namespace gradloom::cli {

// Samples of several loops, taken round-robin. After the first round only the two fastest continue, and their samples
// restart.
class Contest {
 public:
  explicit Contest(size_t loops);
  size_t next() { return running_[turn_++ % running_.size()]; }
  void add(size_t loop, double ms) { samples_[loop].push_back(ms); }
  void narrow();
  double best() const;   // the fastest loop's median
  double least() const;  // the fastest sample

 private:
  std::vector<std::vector<double>> samples_;
  std::vector<size_t> running_;
  size_t turn_ = 0;
};

// What is written is zero afterwards.
class Roof {
 public:
  // With `warm`, each sample is preceded by an untimed pass that leaves the caches in the same state.
  Roof(ProbeTeam& team, bool warm);
  void select(const std::vector<Span>& reads, const std::vector<Span>& writes);  // the loops that later samples time
  void sample(const std::vector<Span>& reads, const std::vector<Span>& writes);
  double read_ms() const { return read_.best(); }
  double write_ms() const { return write_.best(); }
  double least_ms() const { return read_.least() + write_.least(); }

 private:
  ProbeTeam& team_;
  bool warm_;
  std::vector<ReadLoop> reads_;
  std::vector<WriteLoop> writes_;
  Contest read_, write_;
};

}  // namespace gradloom::cli
