#pragma once
// Finds two iterations of one parallel loop that touch an element in a way whose order matters, and two threads of a
// GPU that do so with no barrier between. Iterations run one after the other here, as a depth-first walk of a fork-join
// tree; one remembered reader, writer and accumulator an element are then enough to find a race wherever there is one
// (Feng and Leiserson, "Efficient detection of determinacy races in Cilk programs").
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gradloom/stmt.h"

namespace gradloom::ir::interp {

// Who touched an element last, as strand numbers; 0: nobody.
struct Touch {
  uint32_t writer = 0, reader = 0, accumulator = 0;
  AccumulateOp op = AccumulateOp::add;  // of the accumulator
};

// Memory by what orders it: a loop's end, as on a CPU, or for what is a thread's own; for a block's, kept from one grid
// loop to the next (per_block), and for what all threads see, barriers only.
enum class Sharing : uint8_t { own, kept, common };

// A strand is one iteration of one run of a parallel loop; where barriers are explicit, also a statement that all
// threads of a block, or all lanes of a warp, do alike, a lane loop, and what stands between two barriers of the grid.
class RaceDetector {
 public:
  // Strands of one parent are in parallel where these are equal.
  using Fork = std::array<uint32_t, 3>;  // by Sharing

  // Whether the kernel's barriers stand in it: then the end of a loop over threads or blocks is none.
  bool explicit_barriers = false;

  int depth() const { return static_cast<int>(path_.size()); }  // of strands around the current point
  struct Loop {
    Fork fork;
    uint8_t part;  // around
  };
  Loop enter_loop(ForKind kind);
  void enter_iteration(const Loop& loop, std::optional<int64_t> value, const std::string& name);  // none: all of it
  void leave_iteration() { path_.pop_back(); }
  void leave_loop(const Loop& loop);
  void barrier(BarrierScope scope);
  // A statement, or its operands: a strand while this lives, where all threads of a block or lanes of a warp do it.
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
  // Of a buffer that is allocated here.
  Sharing sharing(Space space) const {
    if (space == Space::per_block) return Sharing::kept;
    return space != Space::shared && part_ >= block ? Sharing::own : Sharing::common;
  }

  // Each returns what clashed ("iterations i = 1 and 2 of parallel loop i: a write after a read"), or an empty string.
  std::string read(Touch& touch, Sharing sharing) const;
  std::string write(Touch& touch, Sharing sharing) const;
  std::string accumulate(Touch& touch, AccumulateOp op, Sharing sharing) const;  // atomic ones; others are writes

 private:
  enum Part : uint8_t { host, cooperative, block, warp, thread };  // where barriers are explicit (verify_gpu.h)
  struct Strand {
    uint32_t parent;
    int depth;
    Fork fork;
    std::optional<int64_t> value;
    const std::string* loop;  // null: what threads do alike
  };
  const Strand& strand(uint32_t id) const { return strands_[id - base_]; }
  uint32_t current() const { return path_.back(); }
  Fork fork();  // of what begins here
  void enter(const Fork& fork, std::optional<int64_t> value, const std::string* loop);
  // The ancestors of `id` and of the current strand that are strands of the same fork, when the two are parallel; else
  // 0.
  uint32_t rival(uint32_t id, Sharing sharing) const;
  std::string describe(uint32_t rival, const char* now, const char* before) const;

  std::vector<Strand> strands_;
  std::vector<uint32_t> path_;
  uint32_t base_ = 1, forks_ = 0;
  Part part_ = host;
  uint32_t since_grid_ = 0, since_kept_ = 0, since_block_ = 0,
           since_warp_ = 0;  // the forks of what is after the last barriers
};

}  // namespace gradloom::ir::interp
