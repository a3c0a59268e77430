#include "ir/interpret/races.h"

namespace gradloom::ir::interp {

RaceDetector::Fork RaceDetector::fork() {
  const uint32_t fresh = ++forks_;
  if (part_ == cooperative) return {fresh, since_kept_, since_grid_};
  if (part_ == block) return {fresh, since_block_, since_block_};
  if (part_ == warp) return {fresh, since_warp_, since_warp_};
  return {fresh, fresh, fresh};
}

RaceDetector::Loop RaceDetector::enter_loop(ForKind kind) {
  const Loop loop{fork(), part_};
  if (explicit_barriers && on_gpu(kind))
    part_ = kind == ForKind::grid          ? block
            : kind == ForKind::cooperative ? cooperative
            : kind == ForKind::warp        ? warp
                                           : thread;
  return loop;
}

void RaceDetector::enter(const Fork& fork, std::optional<int64_t> value, const std::string* loop) {
  strands_.push_back({path_.empty() ? 0 : current(), depth(), fork, value, loop});
  path_.push_back(base_ + static_cast<uint32_t>(strands_.size()) - 1);
}

void RaceDetector::enter_iteration(const Loop& loop, std::optional<int64_t> value, const std::string& name) {
  enter(loop.fork, value, &name);
  if (part_ == cooperative) since_grid_ = since_kept_ = ++forks_;
  if (part_ == block) since_block_ = ++forks_, block_ = current();
  if (part_ == warp) since_warp_ = ++forks_;
}

void RaceDetector::leave_loop(const Loop& loop) {
  part_ = static_cast<Part>(loop.part);
  if (!path_.empty()) return;
  base_ += static_cast<uint32_t>(strands_.size());  // everything so far is ordered before what follows
  strands_.clear();
}

void RaceDetector::barrier(BarrierScope scope) {
  if (part_ == warp) since_warp_ = ++forks_;
  if (part_ == block) since_block_ = ++forks_;
  if (part_ != cooperative) return;
  since_kept_ = ++forks_;
  if (scope != BarrierScope::grid) return;
  since_grid_ = since_kept_;
  const Strand around = strand(path_[0]);
  base_ += static_cast<uint32_t>(strands_.size());
  strands_ = {around};
  path_ = {base_};
}

uint32_t RaceDetector::rival(uint32_t id, Sharing sharing) const {
  if (id < base_ || id == current()) return 0;
  while (strand(id).depth >= depth()) id = strand(id).parent;
  uint32_t differing = 0;
  for (; id != 0; id = strand(id).parent) {
    if (path_[strand(id).depth] == id) break;
    differing = id;
  }
  if (differing == 0) return 0;
  const auto fork_of = [&](uint32_t at) { return strand(at).fork[static_cast<size_t>(sharing)]; };
  return fork_of(differing) == fork_of(path_[strand(differing).depth]) ? differing : 0;
}

std::string RaceDetector::describe(uint32_t rival, const char* now, const char* before) const {
  const Strand& other = strand(rival);
  const Strand& here = strand(path_[other.depth]);
  const std::string what = std::string(": ") + now + " after " + before;
  if (other.fork[0] == here.fork[0])
    return "iterations " + *other.loop + " = " + std::to_string(*other.value) + " and " + std::to_string(*here.value) +
           " of parallel loop " + *other.loop + what;
  const auto name = [](const Strand& s) {
    if (!s.loop) return std::string("what all threads do alike");
    return s.value ? "iteration " + *s.loop + " = " + std::to_string(*s.value) : "loop " + *s.loop;
  };
  return name(other) + " and " + name(here) + ", no barrier between them" + what;
}

std::string RaceDetector::read(Touch& touch, Sharing sharing) const {
  if (uint32_t r = rival(touch.writer, sharing)) return describe(r, "a read", "a write");
  if (uint32_t r = rival(touch.accumulator, sharing)) return describe(r, "a read", "an accumulate");
  if (!rival(touch.reader, sharing)) touch.reader = current();
  return {};
}

std::string RaceDetector::write(Touch& touch, Sharing sharing) const {
  if (uint32_t r = rival(touch.writer, sharing)) return describe(r, "a write", "a write");
  if (uint32_t r = rival(touch.accumulator, sharing)) return describe(r, "a write", "an accumulate");
  if (uint32_t r = rival(touch.reader, sharing)) return describe(r, "a write", "a read");
  touch.writer = current();
  return {};
}

std::string RaceDetector::accumulate(Touch& touch, AccumulateOp op, Sharing sharing) const {
  if (uint32_t r = rival(touch.writer, sharing)) return describe(r, "an accumulate", "a write");
  if (uint32_t r = rival(touch.reader, sharing)) return describe(r, "an accumulate", "a read");
  if (uint32_t r = rival(touch.accumulator, sharing)) {
    if (touch.op != op) return describe(r, "an accumulate", "an accumulate of another operation");
    return {};
  }
  touch.accumulator = current();
  touch.op = op;
  return {};
}

}  // namespace gradloom::ir::interp
