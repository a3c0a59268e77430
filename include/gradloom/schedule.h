#pragma once
// Schedules: legality-checked loop transformations that preserve every result bit. Each step is recorded in a trace
// that prints, and that replays on the same authored kernel. An illegal step throws a ScheduleRefusal that gives the
// reason and leaves the kernel unchanged; a step is also refused after which an earlier parallel or vector loop, or a
// divisor, could no longer be proved. After an accepted step the nest verifies, lowers, and computes the same. A wrong
// argument (an unknown name or handle, a factor below 1) throws Error(invalid_argument), not a refusal.
#include <functional>
#include <string>
#include <vector>

#include "gradloom/refusal.h"
#include "gradloom/stmt.h"
#include "gradloom/target.h"

#pragma GCC visibility push(default)
namespace gradloom::ir {

struct [[gnu::visibility("hidden")]] Site;

// Tiling of a product. Blocks are whole tiles; block size 0 means the full extent. Loop order, outermost first: outer
// column blocks, k blocks, row blocks, column blocks, tiles.
struct ProductTiles {
  int rows = 1, vectors = 1, lanes = 8;           // the register tile: rows x (vectors * lanes)
  int unroll_k = 1;                               // unroll factor along k
  int64_t block_m = 0, block_n = 0, block_k = 0;  // cache block sizes
  int64_t outer_n = 0;  // columns, in whole blocks, for which all of k is processed before the next
  // Operands are packed into panels, one k block at a time: A for a block of rows, B for a block of columns; B for an
  // entire outer column block where that is one block, or where row blocks are distributed over threads.
  bool pack_a = false, pack_b = false;
  // Tile order: along rows of C, with A kept in the nearest cache; else down columns, with a panel of B kept there.
  bool along_rows = false;
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
    Loop tail = 0;  // the remainder loop, 0 when the factor is known to divide the extent
  };

  // Steps that change the order of sums are refused unless `level` allows it, the weakest that the kernel may have.
  explicit Schedule(Kernel kernel, Determinism level = Determinism::sequential);
  const Kernel& kernel() const { return kernel_; }
  const std::vector<std::string>& trace() const { return trace_; }  // one line per step, as replay() reads it

  // The loop of this name; repeated names are disambiguated by #0, #1, ... in order of appearance ("i#1").
  Loop loop(const std::string& name) const;
  std::vector<Loop> loops() const;  // all, in order of appearance, outer before inner
  std::vector<Loop> loops(const std::string& name) const;
  const For& get(Loop loop) const;
  Buffer buffer(const std::string& name) const;  // a parameter or an allocated buffer, "#k" as for loops

  // for i in [b, b+n) -> for io in n/factor { for ii in factor }, followed by a tail loop when factor may not divide n.
  Split split(Loop loop, int64_t factor);
  // Cuts the range into `parts` (1 to 1024) of equal length, the last ones shorter or empty: for p in parts { for i in
  // part p }, the same iterations in the same order.
  Split split_parts(Loop loop, int64_t parts);
  // Like split, but with a guard on the last outer iteration instead of a tail loop: for io in ceil(n/factor) { for ii
  // in factor { if (i < n) } }; vector lanes become masks.
  Split split_guarded(Loop loop, int64_t factor);
  // Fuses two perfectly nested loops: by floor_div and floor_mod; segments, offsets[i] to offsets[i + 1], by a table.
  Loop fuse(Loop outer, Loop inner);
  // Interchanges two nested loops; refused unless proved legal. Lets, checks and conditions that stand between them go
  // into the inner loop with the outer one: a check is then evaluated more often, with the same positions.
  void reorder(Loop outer, Loop inner);
  // Splits [b, b+n) at `point` (clamped) into two consecutive loops; conditions on the variable that become constant
  // are folded. A part in which nothing is left to do goes: its handle is 0.
  std::pair<Loop, Loop> partition(Loop loop, Expr point);
  // A copy of the loop for each remainder r of an i64 variable that is known outside it, 2 <= modulus <= most_copies:
  // there the variable is modulus * floor_div(variable, modulus) + r, and what that decides is folded. Returns the
  // copies in the order of r; the first keeps the handles.
  static constexpr int64_t most_copies = 16;
  std::vector<Loop> specialise(Loop loop, const Expr& variable, int64_t modulus);
  // Iterates in the opposite order. Refused unless loop_carried_conflict is empty.
  Loop reverse(Loop loop);
  // Loop distribution: one loop per statement of the body; buffers allocated in the body that are live across
  // statements are expanded by a dim. Refused unless proved legal.
  std::vector<Loop> distribute(Loop loop);
  // Loop fusion, the reverse: `first` moves down to `second`, a loop with the same bounds that follows it in the same
  // body, or else `second` up to `first`, with the statements between them that it needs. Each iteration does that of
  // `first`, then that of `second`. Refused unless no iteration of one is proved to touch what another iteration of the
  // other writes, and unless one of them may move past the statements between them.
  // Returns the one loop, which keeps the handle of `first`.
  Loop join(Loop first, Loop second);
  void parallel(Loop loop);  // refused unless loop_carried_conflict is empty
  void serial(Loop loop);    // makes a parallel loop serial again
  // Binds to a GPU's grid, threads, warps or lanes: refused like parallel (lane: like vectorize, extent 2 to 32); or
  // makes the loop cooperative, which stays in order. Which kinds may stand in which is checked when the kernel is
  // lowered, not at each step.
  void bind(Loop loop, ForKind kind);
  void unroll(Loop loop);     // constant extent, at most 64
  void vectorize(Loop loop);  // constant extent of 2 to 64; refused unless lane_order_conflict is empty
  // Splits by lanes (guarded tail) or, with `copies` > 1, by lanes * copies with the copies unrolled; then vectorizes.
  // Returns the loop over whole vectors.
  Loop vectorize(Loop loop, int lanes, int copies = 1);
  // For a loop whose body is lets around one accumulate: the values of `count` iterations (2 to 64) are read, so that
  // their loads are in flight together, before the first of them is accumulated; what is left of the iterations follows
  // one by one. Refused when the loop reads what it accumulates into. Returns the loop over groups of `count`.
  Loop read_ahead(Loop loop, int64_t count);
  // Redirects every access to `buffer` below `loop` to a fresh buffer that stages the window [begin, begin + extent)
  // per dim: copied in first unless the body is proved to fill it before it reads, copied back afterwards unless it is
  // allocated memory that nothing else touches (which then goes). Refused unless all accesses are proved inside the
  // window, and unless contents copied in from an output or an allocated buffer are proved to have been written
  // earlier.
  Buffer stage(Loop loop, const Buffer& buffer, std::vector<Expr> begin, std::vector<Expr> extent);
  // Privatisation: accumulates below a loop go to a private copy per iteration; copies are reduced into the buffer in
  // iteration order after the loop. Sums of floats are then rounded in another order: refused at level sequential.
  Buffer privatise(Loop loop, const Buffer& buffer);
  // For a buffer that every iteration allocates, zero-fills first and reads last, in loops over all of it: hoists the
  // allocation and the zero-fill out of the loop; each element is re-zeroed where it is read last.
  void hoist_zeroed_buffer(Loop loop, const Buffer& buffer);
  // Evaluates lets of the loop's body that are the same in every iteration once, before the loop, and a condition that
  // is around all of it. Lets under another condition or a check stay, those that read what the loop writes and, where
  // the loop may run no iteration, those that read memory that is not proved to hold a value.
  // Refused when there is none.
  void hoist_lets(Loop loop);
  // Puts a condition into `outer`: `inner`, a loop in it, has an iteration. Refused unless without one the body is
  // proved to store, to what it does not allocate itself, only what is there already. So a scatter that adds to a
  // buffer leaves the rows that nothing is added to alone.
  void skip_empty(Loop outer, Loop inner);
  // Reductions have handles, and names in a trace, as loops do: those of their first variable.
  std::vector<Loop> reductions() const;  // in order of appearance
  Loop reduction(const std::string& name) const;
  const Reduce& get_reduction(Loop reduction) const;
  // Gives it another order. Refused for sums of floats, which are then rounded otherwise, unless the level allows it:
  // a fixed order is the same in every run (run_to_run).
  void reassociate(Loop reduction, SumOrder order);
  // Makes the loops of its order of a reduction. One that no step has expanded is expanded so when it is lowered.
  // `ahead`, of a fold in order over one variable: so many terms are read before they are folded, up to 64.
  ReductionLoops expand(Loop reduction, int64_t ahead = 0);
  // Makes two of a fold in chunks: one of each chunk, stored, whose iterations are independent, and one of the chunks'
  // totals, both in order. `around` as for expand_staged: the first gets these loops, too, inside that over the chunks.
  struct Chunks {
    Loop chunks = 0, each = 0;  // the loop over them, the reduction in it
    Loop total = 0;             // the reduction of their totals
  };
  Chunks split_chunks(Loop reduction, Loop around = 0);
  // The same for the reduction in the body of the loop `columns`, whose iterations are independent: `tile` of them
  // advance together, term by term. What comes before and after the reduction in the body becomes loops of its own,
  // over the tile. Tile 0: all columns. `rows_at_once`: the 16 terms of a block of 16 are read together, for machines
  // with a vector register for each; else four and four.
  ReductionLoops expand_across(Loop columns, int64_t tile, bool rows_at_once = false);
  // The same for a tree over one variable, whose parts are stored for all columns (0: it has none), and then added, so
  // that threads may share the parts.
  ReductionLoops expand_parts(Loop reduction, Loop columns = 0, int64_t tile = 0, bool rows_at_once = false);
  // The same for a tree, for the threads of GPU blocks: a part's blocks are summed at once, each by a thread (blocks of
  // 16) or by 16, and added up in order. `around`: the outermost of the perfectly nested, independent loops around it,
  // which are summed together, `width` neighbours a thread block (0: it has none). Totals that are terms of an outer
  // variable, and those of parts, are stored and folded by loops that follow.
  StagedLoops expand_staged(Loop reduction, int64_t width, Loop around = 0);
  // Tiles a matrix product, for m { for n { alloc sum { sum = first; for k { sum fma= (a, b) } rest } } } where a does
  // not depend on n nor b on m, into cache blocks, packed panels and register tiles; each element's reduction over k
  // stays in order. Refused unless elements are proved independent. Partial sums between k blocks are stored in the
  // epilogue's (`rest`) destination when it only stores the sum, else in a temporary. With `pack_before`, a loop
  // enclosing the product, B is packed before that loop. Returns the tiles' k loops, in order of appearance.
  std::vector<Loop> tile_product(Loop m, const ProductTiles& tiles, Loop pack_before = 0);
  // Scatters. These steps take a serial loop around one accumulate into the buffer, with lets, checks, conditions and
  // loops between them, where the loop's iterations choose the element: for k { let j = idx[k]; check 0 <= j < n { for
  // q { d[j, q] += v } } }. Each element receives the same values in the same order, from the same start, whatever the
  // operation and the type. Refused when the loop does more than that, when it reads the buffer, when the destination
  // (the dims of the index that vary with the loop) depends on a loop inside, and when it is not proved within the
  // buffer's dims.
  struct Groups {
    Loop clear = 0, count = 0, starts = 0, place = 0;  // what sorts
    std::vector<Loop> rows;                            // over the destination dims, outermost first
    Loop group = 0;                                    // over the iterations of one destination
    Var all;                                           // a let: how many iterations have a destination
  };
  // A stable counting sort of the iterations by destination, then for each destination its iterations, in order:
  //   for k_r { for k_g in first[k_r] .. first[k_r + 1] { let k = order[k_g]; for q { d[k_r, q] += v } } }
  // Several destination dims are one key. Checks and conditions that the destination depends on go with the sorting,
  // which moves out of enclosing loops that it does not depend on. Also refused when its tables are known to take more
  // than max_table_bytes.
  static constexpr int64_t max_table_bytes = int64_t{16} << 30;
  Groups group(Loop loop, const Buffer& buffer);
  struct SortedGroups {
    Loop runs = 0;             // over runs of keys; in it, one after the other:
    std::vector<Loop> run;     // loops over the keys, or pairs of keys, of a run; each has independent iterations
    std::vector<Loop> merges;  // then, one after the other, over all keys
    Loop clear = 0, mark = 0;  // over destinations, over iterations: where each destination's keys are
    std::vector<Loop> rows;    // as of Groups
    Loop group = 0;
  };
  // The same by sorting keys of destination and iteration, in loops that may be parallel. `run` keys, a power of two
  // up to 65536, are sorted at a time, as the threads of a block can, then runs are merged two by two:
  //   for k_r { for k_g in first[k_r] .. last[k_r] { let k = keys[side, k_g] & 0xffffffff; for q { d[k_r, q] += v } } }
  // Also refused when the numbers of iterations and destinations are not constants, below 2^30 and 2^31.
  SortedGroups group_sorted(Loop loop, const Buffer& buffer, int64_t run);
  struct LongGroups {
    Loop none = 0, find = 0;  // over slots, over destinations: which destinations have long groups
    Loop slots = 0;           // over slots, each of one long group or none
    Loop group = 0;           // over the iterations of one destination, in it
  };
  // After group_sorted: the iterations of `rows`, its loop over destinations, whose `group` is longer than `longest`
  // are left out and done by a loop of their own that follows, a copy with few iterations, so that other steps can
  // share each one among threads:
  //   for k_r { if e - b <= longest { .. } } for k_slot { let k_r = long[k_slot]; if k_r >= 0 { .. } }
  // The tables move out of enclosing loops. Refused unless iterations of `rows` are proved independent.
  LongGroups separate_long(Loop rows, Loop group, int64_t longest);
  struct NamedGroups {
    Loop named = 0, group = 0;  // over the destinations that are named, over the iterations of one
    Var count, all;             // lets: how many are named, how many iterations have a destination
  };
  // Iterations by destination in tables of the destinations that are named alone, at most as many as iterations: time
  // and memory grow with these, however many elements the buffer has.
  //   for k_r { if k_r < k_named { let k_row = keys[k_r]; for k_g in first[k_r] .. first[k_r + 1] { d[k_row] += v } } }
  // The keys are declared injective, so that the loop may be parallel. A stable sort, or `lending`, for few iterations:
  // each destination lends an element, which must be able to hold an iteration's number, to the first iteration that
  // names it; what the element held comes back. The lender is the buffer, an inout, or what its sums are stored to.
  // An allocated buffer must hold sums between a loop that fills it with a constant, this one, and one that stores it,
  // which is proved to store what is there already where nothing was added: all three then do what is named alone.
  enum class NamedBy : uint8_t { lending, sorting };
  NamedGroups group_named(Loop loop, const Buffer& buffer, NamedBy by);
  struct Bins {
    Loop chunks = 0;                                   // over chunks of iterations
    Loop clear = 0, count = 0, starts = 0, place = 0;  // in each: what sorts it
    Loop bins = 0, runs = 0, records = 0;              // over the bins, a bin's chunks, its records there
  };
  // A stable sort of what the iterations add by bins, ranges of `size` neighbouring values of the first destination
  // dim; then each bin adds its records, chunk after chunk. Sorted are `chunk` iterations at a time, which should fit a
  // cache, as a bin should. Values are computed where they are placed. Also refused when an iteration adds more than
  // one value. 1 <= size, chunk <= 2^30.
  Bins bin(Loop loop, const Buffer& buffer, int64_t size, int64_t chunk);
  struct SortedBins {
    Loop runs = 0;          // over runs of iterations; in it, one after the other:
    std::vector<Loop> run;  // loops over its iterations, pairs of them, records, bins; each has independent iterations
    Loop bins = 0, segments = 0, records = 0;  // over the bins, the runs of a bin, its records there
  };
  // The same by sorting keys of bin and iteration, in loops that may be parallel: `run` iterations at a time, a power
  // of two up to 65536, as the threads of a block can.
  //   for k_b { for k_d { for k_g in begin[k_b, k_d] .. begin[k_b + 1, k_d] { d[k_b * size + at[k_g]] += v[k_g] } } }
  // Also refused when the numbers of iterations and destinations are not constants, and when bins times `run` pass
  // 2^31.
  SortedBins bin_sorted(Loop loop, const Buffer& buffer, int64_t size, int64_t run);
  struct PackedSegments {
    Loop count = 0;  // over groups of segments: what adds their lengths up
    Loop tiles = 0;  // over tiles of iterations; in it, one after the other:
    Loop fetch = 0;  // over segments: what their iterations in the tile read; may be parallel
    Loop add = 0;    // over the tile's iterations, in order
  };
  // For a loop over segments, whose body is lets around a loop whose body is lets around one accumulate: all segments'
  // iterations are numbered, and `tile` of them at a time first read what they accumulate, into memory of their own,
  // and then accumulate it, in order. So that threads fetch what one must add, however short the segments are. Refused
  // when it reads what it accumulates into. 2 <= tile <= 2^20.
  PackedSegments pack_segments(Loop segments, int64_t tile);
  struct Recorded {
    std::vector<Loop> fetch, add;  // the loops that record, the loops that accumulate; outermost first
    std::vector<Buffer> tables;    // by the loops' iterations: a destination, or -1; then what else is recorded
  };
  // For loops of constant bounds around one accumulate, with lets, checks and conditions between them: two copies of
  // them, of which the first records where each iteration accumulates and what, and the second does so, in order:
  //   for k { to[k] = -1; let j = idx[k]; check .. { to[k] = j; of[k] = v } } for k_a { if to[k_a] >= 0 { d[to[k_a]] +=
  //   of[k_a] } }
  // So that threads fetch and check what few must add. Refused when it reads the buffer, and when the destination does
  // not depend on what is read, or is not proved within the buffer's dims.
  Recorded record(Loop loop, const Buffer& buffer);
  // For a loop whose body begins with a thread loop of at most 1024 threads: what that loads from inputs, at places
  // that nothing else that is loaded decides, is loaded to the threads' registers an iteration earlier, up to 512 bytes
  // a thread, so that the loads are under way while the rest of that iteration is done. Refused when there is nothing
  // of the kind.
  void load_ahead(Loop loop, Loop threads);
  struct Overlapped {
    Loop rounds = 0, pieces = 0;  // over rounds, over pieces of both loops in each
    Loop first = 0, second = 0;   // in one piece: over iterations of the first loop, of a part of the second
  };
  // Software pipelining. For a loop whose body is two loops of constant bounds, perhaps with lets around both and
  // conditions around each: while an iteration does its first loop, a piece at a time, the one before it does its
  // second, piece by piece, too; in `parts` of equal length, up to 64, each of them an iteration later. Of n:
  //   for s_t in 0 .. n + 2 { for s_n { if s_t < n { for first in piece s_n { .. s_t .. } }
  //     for second in piece s_n of a part { if s_t > 0 & s_t <= n { .. s_t - 1, in part 0 .. }
  //       if s_t > 1 & s_t <= n + 1 { .. s_t - 2, in part 1 .. } } } }
  // A buffer that both use, one at most, gets parts + 1 copies. It must be allocated and filled with a constant right
  // before the loop, and filled so again by the second loop, as hoist_zeroed_buffer leaves it. Refused when both use
  // other memory that either writes, and, in several parts, unless the second loop's work is proved independent from
  // one iteration of `loop` to another.
  Overlapped overlap(Loop loop, Loop first, Loop second, int64_t parts = 1);
  // The dims of an allocated buffer in another order, outermost first, and longer, where `dims` says so (0: as they
  // are), so that neighbours lie in other banks or cache sets. Refused where it is accessed by vectors or prefetched.
  // Returns the buffer that takes its place.
  Buffer layout(const Buffer& buffer, const std::vector<int>& order, const std::vector<int64_t>& dims = {});
  // Owner computes: a new loop around this one, over ranges of `size` neighbouring values of the first destination dim,
  // each of which reads all iterations and does those that are its own. The new loop, which is returned, can then be
  // made parallel, or each of its ranges staged.
  Loop owner(Loop loop, const Buffer& buffer, int64_t size);
  // For sums that a buffer of their own holds until `store`, the last loop that uses them, stores each to an element of
  // another buffer, or adds it there (where a total is 0 the element may be left as it is): they are added up in that
  // buffer. Refused unless they are filled with zeros first and then only added to, and unless nothing else uses the
  // other buffer meanwhile. Sums of floats that are added to it are rounded in another order: refused unless the level
  // is relaxed.
  void sum_in_place(Loop store, const Buffer& sums);
  // Marks the accumulates into the buffer below the loop as atomic, so that iterations that share an element may run in
  // any order. Refused when the loop also reads or stores the buffer, and for sums of floats unless the level is
  // relaxed.
  void atomic(Loop loop, const Buffer& buffer);
  void streaming(const Buffer& buffer);  // marks every store to it as streaming
  // Prefetches the cache lines that the load of `buffer` in `loop` accesses `distance` iterations later. With `until`:
  // only in its last iteration, what one so far behind it would access, below `until`: one of a segment that follows,
  // where the loop is over segments. What its address is loaded from is then proved within its buffers.
  void prefetch(Loop loop, const Buffer& buffer, int64_t distance, int level, Expr until = {});
  // The same in a loop of constant bounds, past whose last iteration follow those of the next iteration of `outer`, a
  // loop with no other between the two. Refused when an index is loaded.
  void prefetch_across(Loop outer, Loop loop, const Buffer& buffer, int64_t distance, int level);

  // The outcome of an attempt: true when all its steps succeeded, else false with the refusal's message.
  struct Attempt {
    std::string refusal;
    explicit operator bool() const { return refusal.empty(); }
  };
  // Transactional: applies all of these steps, or none if one is refused. They are applied to the copy passed in;
  // handles stay the same. Any other error, such as a wrong argument, is rethrown.
  Attempt attempt(const std::function<void(Schedule& trial)>& steps);

  void replay(const std::vector<std::string>& trace);

 private:
  // Replaces the loop by `to` and records the step; refused when an earlier step's proof would no longer hold.
  void put(const char* step, const Site& site, const Stmt& to, const std::string& line);

  // What group_sorted has made: [first[r], last[r]) are disjoint parts of [0, count) for all r. Nothing else writes
  // them.
  struct SortedTables {
    Buffer first, last;
    int64_t count;
  };

  Kernel kernel_;
  std::vector<SortedTables> sorted_;
  Determinism level_;
  std::vector<std::string> trace_;
  bool part_of_step_ = false;  // the enclosing step re-proves once, at its end
};

}  // namespace gradloom::ir

#pragma GCC visibility pop
