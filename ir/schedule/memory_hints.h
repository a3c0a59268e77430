#pragma once
// For the default schedule of a CPU: outputs that are too large for its caches are written past them, and tables that
// are too large are fetched ahead of use.
#include <vector>

#include "gradloom/target.h"
#include "ir/schedule/each_nest.h"

namespace gradloom::ir {

class MemoryHints {
 public:
  MemoryHints(const Kernel& kernel, const Target& target);

  // Cuts the loop before the first iteration that writes at the start of a cache line, if the buffer does start at one.
  // Throws a refusal unless the loop writes one element an iteration, contiguously, of a streamed output, and lines of
  // it are not known to start at cache lines.
  std::pair<Loop, Loop> at_lines(Schedule& schedule, Loop loop) const;
  bool streams() const { return !streamed_.empty(); }
  // Makes the stores to such outputs streaming.
  void stream(Scheduled& scheduled) const;
  // Prefetches lines of large inputs that are read in order, and what single elements of tables that are too large are
  // added to, where the element's index is loaded.
  void fetch(Schedule& schedule) const;

 private:
  const Target& target_;
  std::vector<Buffer> read_;
  std::vector<Buffer> streamed_;  // outputs that are stored to and hardly accessed otherwise
  std::vector<Buffer> fetched_;
};

}  // namespace gradloom::ir
