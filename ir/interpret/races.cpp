#include "ir/interpret/races.h"

namespace gradloom::ir::interp {

void RaceDetector::enter_iteration(uint32_t instance, int64_t value, const std::string& loop) {
  strands_.push_back({path_.empty() ? 0 : current(), instance, value, &loop, depth()});
  path_.push_back(base_ + static_cast<uint32_t>(strands_.size()) - 1);
}

void RaceDetector::leave_loop() {
  if (!path_.empty()) return;
  base_ += static_cast<uint32_t>(strands_.size());
  strands_.clear();
}

uint32_t RaceDetector::rival(uint32_t id) const {
  if (id < base_ || id == current()) return 0;
  while (strand(id).depth >= depth()) id = strand(id).parent;
  uint32_t differing = 0;
  for (; id != 0; id = strand(id).parent) {
    if (path_[strand(id).depth] == id) break;
    differing = id;
  }
  if (differing == 0) return 0;
  return strand(differing).instance == strand(path_[strand(differing).depth]).instance ? differing : 0;
}

std::string RaceDetector::describe(uint32_t rival, const char* now, const char* before) const {
  const Strand& other = strand(rival);
  const Strand& here = strand(path_[other.depth]);
  return "iterations " + *other.loop + " = " + std::to_string(other.value) + " and " + std::to_string(here.value) +
         " of parallel loop " + *other.loop + ": " + now + " after " + before;
}

std::string RaceDetector::read(Touch& touch) const {
  if (uint32_t r = rival(touch.writer)) return describe(r, "a read", "a write");
  if (uint32_t r = rival(touch.accumulator)) return describe(r, "a read", "an accumulate");
  if (!rival(touch.reader)) touch.reader = current();
  return {};
}

std::string RaceDetector::write(Touch& touch) const {
  if (uint32_t r = rival(touch.writer)) return describe(r, "a write", "a write");
  if (uint32_t r = rival(touch.accumulator)) return describe(r, "a write", "an accumulate");
  if (uint32_t r = rival(touch.reader)) return describe(r, "a write", "a read");
  touch.writer = current();
  return {};
}

std::string RaceDetector::accumulate(Touch& touch, AccumulateOp op) const {
  if (uint32_t r = rival(touch.writer)) return describe(r, "an accumulate", "a write");
  if (uint32_t r = rival(touch.reader)) return describe(r, "an accumulate", "a read");
  if (uint32_t r = rival(touch.accumulator)) {
    if (touch.op != op) return describe(r, "an accumulate", "an accumulate of another operation");
    return {};
  }
  touch.accumulator = current();
  touch.op = op;
  return {};
}

}  // namespace gradloom::ir::interp
