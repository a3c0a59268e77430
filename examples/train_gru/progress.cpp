#include "progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>

namespace train_gru {
namespace {

constexpr int bar_width = 30;
constexpr int64_t lines = 20;
constexpr std::chrono::milliseconds redraw{100};

}  // namespace

Progress::Progress(int64_t steps) : steps_(steps), terminal_(isatty(STDOUT_FILENO) != 0) {}

Progress::~Progress() {
  if (terminal_ && shown_ != Clock::time_point{}) std::putchar('\n');
}

void Progress::show(int64_t done, double loss) {
  if (!terminal_) {
    if (done * lines / steps_ != (done - 1) * lines / steps_)
      fmt::print("step {} of {}: loss {:.6f}\n", done, steps_, loss);
    return;
  }
  const Clock::time_point now = Clock::now();
  if (now - shown_ < redraw && done < steps_) return;
  shown_ = now;
  const double left = std::chrono::duration<double>(now - start_).count() * static_cast<double>(steps_ - done) /
                      static_cast<double>(done);
  const int full = static_cast<int>(bar_width * done / steps_);
  fmt::print("\r[{:=<{}}{:{}}] {}/{}  loss {:.3f}  {:.0f} s left ", "", full, "", bar_width - full, done, steps_, loss,
             left);
  std::fflush(stdout);
}

}  // namespace train_gru
