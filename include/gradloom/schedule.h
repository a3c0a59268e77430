#pragma once
// Schedules: legality-checked rewrites of a kernel's loops that keep every result bit. Each step is recorded; the trace
// prints, and replays on the same authored kernel. A step that the nest does not allow throws a ScheduleRefusal that
// says why and changes nothing; refused is also a step after which a loop made parallel or vector earlier, or a
// divisor, would no longer be proved. After an accepted step the nest verifies, lowers, and means the same. A wrong
// argument (an unknown name or handle, a factor below 1) is an Error(invalid_argument) and no refusal.
#include <functional>
#include <string>
#include <vector>

#include "gradloom/refusal.h"
#include "gradloom/stmt.h"

namespace gradloom::ir {

struct Site;

// How tile_product cuts a product. Blocks are whole tiles; a block of 0 is all there is. From the outside: outer blocks
// of columns, blocks along k, blocks of rows, blocks of columns, tiles.
struct ProductTiles {
  int rows = 1, vectors = 1, lanes = 8;           // the register tile: rows x (vectors * lanes)
  int unroll_k = 1;                               // steps along k side by side
  int64_t block_m = 0, block_n = 0, block_k = 0;  // what stays in a near cache
  int64_t outer_n = 0;                            // whole blocks of columns that go through all of k before the next
  // An operand is brought into panels, for one block along k at a time: A for a block of rows, B for a block of
  // columns; B for all of an outer block of columns where that is one block, or where blocks of rows are shared out.
  bool pack_a = false, pack_b = false;
  bool along_rows = false;  // tiles follow one another along rows of C, and A stays in the nearest cache; else down
                            // columns, and a panel of B does
  enum Share : uint8_t {
    serial,
    rows_parallel,
    columns_parallel
  } share = serial;  // blocks of rows, or outer blocks of columns, to threads

  int64_t columns() const { return int64_t{vectors} * lanes; }
};

class Schedule {
 public:
  // A handle stays valid until a step consumes the loop.
  using Loop = ir::Loop;
  struct Split {
    Loop outer = 0, inner = 0;
    Loop tail = 0;  // the loop over what is left, 0 when the factor is known to divide the extent
  };

  explicit Schedule(Kernel kernel);
  const Kernel& kernel() const { return kernel_; }
  const std::vector<std::string>& trace() const { return trace_; }  // one line a step, as replay() reads it

  // The loop of this name; names that repeat are told apart by #0, #1, ... in order of appearance ("i#1").
  Loop loop(const std::string& name) const;
  std::vector<Loop> loops() const;  // all, in order of appearance, outer before inner
  std::vector<Loop> loops(const std::string& name) const;
  const For& get(Loop loop) const;
  Buffer buffer(const std::string& name) const;  // a parameter or an allocated buffer, "#k" as for loops

  // for i in [b, b+n) -> for io in n/factor { for ii in factor } and, when factor may not divide n, a tail loop after
  // it.
  Split split(Loop loop, int64_t factor);
  // Like split, but the last outer iteration is guarded: for io in ceil(n/factor) { for ii in factor { if (i < n) } };
  // vector lanes become masks.
  Split split_guarded(Loop loop, int64_t factor);
  // Two perfectly nested loops -> one (index by floor_div and floor_mod).
  Loop fuse(Loop outer, Loop inner);
  // Swaps two perfectly nested loops; refused unless proved to keep results.
  void reorder(Loop outer, Loop inner);
  // Splits [b, b+n) at `point` (clamped): two loops one after the other; conditions on the variable that become
  // constant are folded.
  std::pair<Loop, Loop> partition(Loop loop, Expr point);
  // A loop over a block's statements -> one loop for each of them; allocated buffers in between gain a dim. Refused
  // unless proved.
  std::vector<Loop> distribute(Loop loop);
  void parallel(Loop loop);  // refused unless loop_carried_conflict is empty
  void serial(Loop loop);    // a parallel loop, in order again
  // A grid, thread, warp or lane loop of a GPU: refused like parallel (lane: like vectorize, extent 2 to 32); or a
  // cooperative one, which stays in order. The kernel need not have the form of verify_gpu.h before it is lowered.
  void bind(Loop loop, ForKind kind);
  void unroll(Loop loop);     // constant extent, at most 64
  void vectorize(Loop loop);  // constant extent of 2 to 64; refused unless lane_order_conflict is empty
  // split by lanes (tail guarded) or, with `copies` > 1, by lanes * copies with the copies unrolled; then vectorize.
  // The loop over whole vectors is returned.
  Loop vectorize(Loop loop, int lanes, int copies = 1);
  // Every access to `buffer` below `loop` goes to a fresh buffer that holds the window [begin, begin + extent) a dim:
  // copied in first unless the body is proved to fill it before it reads, copied back after. Refused unless all
  // accesses are proved inside the window, and unless what is copied in from an output or an allocated buffer is proved
  // to be written earlier.
  Buffer stage(Loop loop, const Buffer& buffer, std::vector<Expr> begin, std::vector<Expr> extent);
  // Accumulates below a loop go to a private copy an iteration, added to the buffer in iteration order after it.
  Buffer privatise(Loop loop, const Buffer& buffer);
  // A buffer that every iteration allocates, fills with zeros first and reads last, in loops over all of it: allocated
  // and zeroed before the loop instead, and each element zeroed again where it is read last.
  void hoist_zeroed_buffer(Loop loop, const Buffer& buffer);
  // A matrix product, for m { for n { alloc sum { sum = first; for k { sum fma= (a, b) } rest } } } where a does not
  // depend on n nor b on m, -> blocks, panels and register tiles; k stays in order for each element. Refused unless
  // elements are proved independent. Sums between blocks along k live in what the rest stores to, if that is all it
  // does, else in a temporary. With `pack_before`, a loop around the product, B is brought into panels before that
  // loop. Gives the loops along k of the tiles, in order of appearance.
  std::vector<Loop> tile_product(Loop m, const ProductTiles& tiles, Loop pack_before = 0);
  void streaming(const Buffer& buffer);  // marks every store to it
  // Prefetches the lines that the load of `buffer` in `loop` will touch `distance` iterations later.
  void prefetch(Loop loop, const Buffer& buffer, int64_t distance, int level);

  // How an attempt ended: true when all of its steps were done, else false with the refusal's line.
  struct Attempt {
    std::string refusal;
    explicit operator bool() const { return refusal.empty(); }
  };
  // All of these steps, or none where one of them is refused. They are done on the copy that they get; handles are the
  // same. Any other error, a wrong argument say, is passed on.
  Attempt attempt(const std::function<void(Schedule& trial)>& steps);

  void replay(const std::vector<std::string>& trace);

 private:
  // Puts `to` in the loop's place and records the step; refused when it would leave unproved what an earlier step
  // proved.
  void put(const char* step, const Site& site, const Stmt& to, const std::string& line);

  Kernel kernel_;
  std::vector<std::string> trace_;
  bool part_of_step_ = false;  // the step around proves once, at its end
};

}  // namespace gradloom::ir
