#pragma once
// Finds two iterations of one parallel loop that touch an element in a way whose order matters. Iterations run one
// after the other here, as a depth-first walk of the fork-join tree; one remembered reader, writer and accumulator an
// element are then enough to find a race wherever there is one (Feng and Leiserson, "Efficient detection of determinacy
// races in Cilk programs").
#include <cstdint>
#include <string>
#include <vector>

#include "ir/stmt.h"

namespace gradloom::ir::interp {

// Who touched an element last, as strand numbers; 0: nobody.
struct Touch {
  uint32_t writer = 0, reader = 0, accumulator = 0;
  AccumulateOp op = AccumulateOp::add;  // of the accumulator
};

// A strand is one iteration of one run of a parallel loop.
class RaceDetector {
 public:
  int depth() const { return static_cast<int>(path_.size()); }  // of parallel loops around the current point
  uint32_t enter_loop() { return ++instances_; }
  void enter_iteration(uint32_t instance, int64_t value, const std::string& loop);
  void leave_iteration() { path_.pop_back(); }
  void leave_loop();  // everything before the end of an outermost loop is in series with what follows

  // Each returns what clashed ("iterations i = 1 and 2 of parallel loop i: a write after a read"), or an empty string.
  std::string read(Touch& touch) const;
  std::string write(Touch& touch) const;
  std::string accumulate(Touch& touch, AccumulateOp op) const;  // atomic ones; others are writes

 private:
  struct Strand {
    uint32_t parent, instance;
    int64_t value;
    const std::string* loop;
    int depth;
  };
  const Strand& strand(uint32_t id) const { return strands_[id - base_]; }
  uint32_t current() const { return path_.back(); }
  // The ancestors of `id` and of the current strand that are iterations of the same loop run, when the two are
  // parallel; else 0.
  uint32_t rival(uint32_t id) const;
  std::string describe(uint32_t rival, const char* now, const char* before) const;

  std::vector<Strand> strands_;
  std::vector<uint32_t> path_;
  uint32_t base_ = 1, instances_ = 0;
};

}  // namespace gradloom::ir::interp
