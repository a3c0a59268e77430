#pragma once
// Dynamic race detection: two iterations of one parallel loop with conflicting accesses to an element, and two threads
// of a GPU with conflicting accesses and no barrier between. Iterations run one after the other here, as a depth-first
// walk of a fork-join tree; recording one reader, writer and accumulator per element then suffices to find a race
// whenever there is one (Feng and Leiserson, "Efficient detection of determinacy races in Cilk programs").
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gradloom/stmt.h"

namespace gradloom::ir::interp {

// The last accesses to an element, as strand numbers; 0: none.
struct Touch {
  uint32_t writer = 0, reader = 0, accumulator = 0;
  AccumulateOp op = AccumulateOp::add;  // of the accumulator
};

// Memory by what orders its accesses. own: the end of a loop, as on a CPU, or private to a thread. kept (per_block:
// per-block state across grid loops) and common (visible to all threads): barriers only.
enum class Sharing : uint8_t { own, kept, common };

// A strand is one iteration of one execution of a parallel loop; with explicit barriers, also a statement executed
// uniformly by all threads of a block, or all lanes of a warp, a lane loop, and the code between two grid-wide
// barriers.
class RaceDetector {
 public:
  // Strands of one parent are parallel where these are equal.
  using Fork = std::array<uint32_t, 3>;  // by Sharing

  // Whether the kernel contains explicit barriers: then the end of a loop over threads or blocks does not synchronise.
  bool explicit_barriers = false;

  int depth() const { return static_cast<int>(path_.size()); }  // number of strands enclosing the current point
  struct Loop {
    Fork fork;
    uint8_t part;  // the enclosing part
  };
  Loop enter_loop(ForKind kind);
  // No value: the loop as one strand.
  void enter_iteration(const Loop& loop, std::optional<int64_t> value, const std::string& name);
  void leave_iteration() { path_.pop_back(); }
  void leave_loop(const Loop& loop);
  void barrier(BarrierScope scope);
  // Scope of a statement, or its operands, as a strand, where all threads of a block or lanes of a warp execute it
  // uniformly.
  class Alike {
   public:
    explicit Alike(RaceDetector& races) : races_(races.part_ == block || races.part_ == warp ? &races : nullptr) {
      if (races_) races_->enter(races_->fork(), {}, nullptr);
    }
    ~Alike() {
      if (races_) races_->leave_iteration();
    }
    Alike(const Alike&) = delete;

   private:
    RaceDetector* races_;
  };
  // For a buffer allocated at this point.
  Sharing sharing(Space space) const {
    if (space == Space::per_block) return Sharing::kept;
    return space != Space::shared && part_ >= block ? Sharing::own : Sharing::common;
  }
  // The iteration of a grid loop that is running, where barriers are explicit; 0: none.
  uint32_t running_block() const { return part_ >= block ? block_ : 0; }

  // Each returns the conflict ("iterations i = 1 and 2 of parallel loop i: a write after a read"), or an empty string.
  std::string read(Touch& touch, Sharing sharing) const;
  std::string write(Touch& touch, Sharing sharing) const;
  // Atomic accumulates; others count as writes.
  std::string accumulate(Touch& touch, AccumulateOp op, Sharing sharing) const;

 private:
  enum Part : uint8_t { host, cooperative, block, warp, thread };  // with explicit barriers (verify_gpu.h)
  struct Strand {
    uint32_t parent;
    int depth;
    Fork fork;
    std::optional<int64_t> value;
    const std::string* loop;  // null: code executed uniformly by all threads
  };
  const Strand& strand(uint32_t id) const { return strands_[id - base_]; }
  uint32_t current() const { return path_.back(); }
  Fork fork();  // the fork of strands that begin here
  void enter(const Fork& fork, std::optional<int64_t> value, const std::string* loop);
  // The ancestor of `id` that is a strand of the same fork as an ancestor of the current strand, when the two are
  // parallel; else 0.
  uint32_t rival(uint32_t id, Sharing sharing) const;
  std::string describe(uint32_t rival, const char* now, const char* before) const;

  std::vector<Strand> strands_;
  std::vector<uint32_t> path_;
  uint32_t base_ = 1, forks_ = 0;
  Part part_ = host;
  uint32_t block_ = 0;
  uint32_t since_grid_ = 0, since_kept_ = 0, since_block_ = 0,
           since_warp_ = 0;  // the forks after the last barriers
};

}  // namespace gradloom::ir::interp
