#pragma once
// Progress of the training: a bar redrawn in place on a terminal, else twenty lines in all.
#include <chrono>
#include <cstdint>

namespace train_gru {

class Progress {
 public:
  explicit Progress(int64_t steps);
  ~Progress();  // ends the bar with a newline
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  void show(int64_t done, double loss);

 private:
  using Clock = std::chrono::steady_clock;
  int64_t steps_;
  bool terminal_;
  Clock::time_point start_ = Clock::now(), shown_{};
};

}  // namespace train_gru
