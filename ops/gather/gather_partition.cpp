// The strategy "partition" of a flat scatter into a dX larger than the cache: indices and values are first sorted,
// stably, into bins of neighbouring destinations, one cache-resident chunk at a time; then each bin's cache-resident
// sums accumulate its records, chunk after chunk, and are streamed out.
#include <algorithm>
#include <bit>
#include <limits>

#include "ir/schedule/schedule_gpu.h"
#include "ops/gather/gather_strategies.h"
#include "ops/patterns/integer_math.h"

namespace gradloom {
namespace {

using ir::Buffer;
using ir::Expr;
using ir::Loop;

constexpr int64_t tile = 64;       // indices checked, then counted: few, so that out-of-order execution overlaps both
constexpr int64_t line_words = 8;  // per cache line

// One array of an 8-byte word per record. f32 sums need one word (offset in the bin, value); f64 sums two.
struct Word {
  Buffer placed, sorted;
  std::function<Expr(Expr offset, Expr value)> pack;
};

Expr u64(Expr e) { return ir::cast(DType::u64, std::move(e)); }
Expr i64(Expr e) { return ir::cast(DType::i64, std::move(e)); }

class Partition {
 public:
  Partition(KernelFrame& frame, const ir::Target& target)
      : sizes_(frame.plan()),
        f_(frame, gather_roles(frame.plan())),
        b_(f_.b),
        target_(target),
        size_(f_.dx->dims[0]),
        count_(f_.dy->dims[0]),
        lengths_(partition_lengths(f_.sum, size_, count_, target)),
        bins_(ir::floor_div(size_ + (lengths_.bin - 1), lengths_.bin)),
        chunks_(ir::floor_div(count_ + (lengths_.chunk - 1), lengths_.chunk)) {}

  void write() {
    begin_ = b_.alloc("begin", DType::i32, {chunks_, bins_ + 1});
    // The runs of a bin are about a chunk's length apart: without padding they would all map to the same cache sets.
    const int64_t row = lengths_.chunk + (lengths_.run / line_words + 1) * line_words;
    sorted_ = b_.alloc("sorted", DType::u64, {chunks_, row});
    if (f_.sum == DType::f64) sorted_values_ = b_.alloc("sorted_values", DType::u64, {chunks_, row});
    sort();
    sum();
  }

  void schedule(ir::Schedule& schedule) const {
    if (target_.gpu) return ir::schedule_gpu(schedule, target_);
    const bool large = sizes_.large(target_);
    for (const std::vector<Loop>* loops : {&zeros_, &stores_})
      for (const Loop loop : *loops) vectorize_sums(schedule, loop, sizes_.sum_bytes, target_);
    for (const Loop loop : copies_) vectorize_sums(schedule, loop, 8, target_);
    constexpr int64_t indices_ahead = 512, values_ahead = 1024;
    const int lanes = target_.lanes(8);
    for (const Loop loop : checks_)
      if (const Loop vectors = schedule.vectorize(loop, lanes); vectors && large)
        schedule.prefetch(vectors, f_.indices, indices_ahead / lanes, 1);
    for (const Loop loop : counts_) in_fours(schedule, loop);
    if (const Loop records = in_fours(schedule, places_); records && large)
      schedule.prefetch(records, f_.dy, values_ahead / 4, 1);
    if (large)
      for (const Word& word : words_) {
        schedule.streaming(word.sorted);
        // Prefetches the next bin's run of the same chunk.
        for (const Loop loop : runs_) schedule.prefetch(loop, word.sorted, lengths_.run, 1);
      }
    schedule.parallel(bin_groups_);
    if (target_.threads > 1) schedule.parallel(chunk_groups_);
    stream_large(schedule, sizes_, target_);
  }

 private:
  // Unrolls by four; returns the loop over full groups, 0 where there is none.
  static Loop in_fours(ir::Schedule& schedule, Loop loop) {
    const ir::Schedule::Split split = schedule.split(loop, 4);
    if (split.outer) schedule.unroll(split.inner);
    return split.outer;
  }

  // Sorts the records of each chunk by bin, in index order within a bin. Software pipelined: a chunk is copied out,
  // which is memory bound, while the next is counted, which is compute bound.
  void sort() {
    const int64_t chunk = lengths_.chunk, group = lengths_.chunks;
    chunk_groups_ = b_.loop("c", 0, ir::floor_div(chunks_ + (group - 1), group), [&](Expr g) {
      const Expr first = g * group, chunks = at_most(group, chunks_, first);
      const auto size = ir::as_int(size_);
      // Destinations, clamped where the check fails, so that counting and placing stay in range.
      destinations_ = b_.alloc(
          "destinations", size && *size <= std::numeric_limits<uint32_t>::max() ? DType::u32 : DType::i64, {chunk});
      cursor_ = b_.alloc("cursor", DType::i32, {bins_});
      alloc_placed();
      b_.loop("e", -1, chunks + 1, [&](Expr e) {
        const Expr c = b_.let("chunk", first + e + 1), records = at_most(chunk, count_, c * chunk),
                   whole = ir::floor_div(records, tile);
        b_.loop("zb", 0, bins_, [&](Expr bin) { b_.store(cursor_, {bin}, ir::constant_int(DType::i32, 0)); });
        b_.loop("t", 0, chunk / tile, [&](Expr t) {
          b_.if_then(e >= 0, [&] {
            for (const Word& word : words_)
              copies_.push_back(b_.loop("w", t * tile, tile, [&](Expr i) {
                b_.store(word.sorted, {first + e, i}, ir::load(word.placed, {i}));
              }));
          });
          b_.if_then((e + 1 < chunks) & (t < whole), [&] { count_tile(c * chunk, t * tile, tile); });
        });
        b_.if_then(e + 1 < chunks, [&] {
          if (!(ir::as_int(count_) && *ir::as_int(count_) % tile == 0))
            count_tile(c * chunk, whole * tile, ir::floor_mod(records, tile));
          lay_out(c);
          place(c * chunk, records);
        });
      });
    });
  }

  // The remainder of `extent` from `begin` on, at most `length`.
  Expr at_most(int64_t length, const Expr& extent, const Expr& begin) const {
    const auto known = ir::as_int(extent);
    return known && *known % length == 0 ? Expr(length) : b_.let("length", ir::min(Expr(length), extent - begin));
  }

  void alloc_placed() {
    words_.assign(1, {b_.alloc("placed", DType::u64, {lengths_.chunk}), sorted_, {}});
    if (f_.sum == DType::f64)
      words_.push_back({b_.alloc("placed_values", DType::u64, {lengths_.chunk}), sorted_values_, {}});
    // The tail of a shorter chunk is copied too, but never read.
    for (const Word& word : words_)
      copies_.push_back(b_.loop("zp", 0, lengths_.chunk,
                                [&](Expr i) { b_.store(word.placed, {i}, ir::constant_int(DType::u64, 0)); }));
    if (words_.size() == 1) {
      words_[0].pack = [](Expr offset, Expr value) {
        return ir::binary(ir::BinaryOp::bit_or,
                          ir::binary(ir::BinaryOp::shl, u64(offset), ir::constant_int(DType::u64, 32)),
                          u64(ir::bitcast(DType::u32, value)));
      };
    } else {
      words_[0].pack = [](Expr offset, Expr) { return u64(offset); };
      words_[1].pack = [](Expr, Expr value) { return ir::bitcast(DType::u64, value); };
    }
  }

  void count_tile(const Expr& first, const Expr& begin, const Expr& extent) {
    checks_.push_back(b_.loop("h", begin, extent, [&](Expr k) {
      f_.checked_index(
          {first + k}, [&](Expr) {},
          [&](Expr j) {
            b_.store(destinations_, {k}, ir::cast(destinations_->dtype, ir::max(ir::min(j, size_ - 1), Expr(0))));
          });
    }));
    counts_.push_back(b_.loop("n", begin, extent, [&](Expr k) {
      b_.accumulate(cursor_, {bin_of(destination(k))}, ir::constant_int(DType::i32, 1));
    }));
  }
  Expr destination(const Expr& k) { return i64(ir::load(destinations_, {k})); }
  Expr bin_of(const Expr& j) const { return ir::floor_div(j, lengths_.bin); }

  void lay_out(const Expr& c) {
    const Buffer running = b_.alloc("running", DType::i32, {1}, {}, ir::Space::registers);
    b_.store(running, {0}, ir::constant_int(DType::i32, 0));
    b_.loop("lb", 0, bins_, [&](Expr bin) {
      const Expr start = b_.let("start", ir::load(running, {0})), records = b_.let("records", ir::load(cursor_, {bin}));
      b_.store(begin_, {c, bin}, start);
      b_.store(cursor_, {bin}, start);
      b_.store(running, {0}, start + records);
    });
    b_.store(begin_, {c, bins_}, ir::load(running, {0}));
  }

  void place(const Expr& first, const Expr& records) {
    places_ = b_.loop("k", 0, records, [&](Expr k) {
      const Expr j = b_.let("j", destination(k)), bin = b_.let("bin", bin_of(j)),
                 slot = b_.let("slot", ir::load(cursor_, {bin}));
      b_.store(cursor_, {bin}, slot + ir::constant_int(DType::i32, 1));
      const Expr value = b_.let("value", ir::cast(f_.sum, ir::load(f_.dy, {first + k})));
      for (const Word& word : words_)
        b_.store(word.placed, {i64(slot)}, word.pack(ir::floor_mod(j, lengths_.bin), value));
    });
  }

  // Full bins in parallel, then the remainder of dX.
  void sum() {
    const int64_t bin_length = lengths_.bin;
    const Expr whole = ir::floor_div(size_, bin_length);
    if (lengths_.bins > 1)
      sum_groups(whole);
    else
      bin_groups_ = b_.loop("b", 0, whole, [&](Expr bin) { sum_bin(bin, bin_length); });
    const Expr rest = ir::floor_mod(size_, bin_length);
    if (ir::as_int(size_) && *ir::as_int(size_) % bin_length == 0) return;
    b_.if_then(rest > 0, [&] { sum_bin(whole, rest); });
  }

  // Summing is compute bound and writing dX memory bound. Software pipelined, with double-buffered sums: a bin is
  // written piece by piece between the runs of the next.
  void sum_groups(const Expr& whole) {
    const int64_t length = lengths_.bin, group = lengths_.bins, piece = std::min<int64_t>(256, length),
                  pieces = length / piece;
    bin_groups_ = b_.loop("b", 0, ir::floor_div(whole + (group - 1), group), [&](Expr g) {
      const Buffer acc = b_.alloc("acc", f_.sum, {2 * length});
      const Expr first = g * group, bins = at_most(group, whole, first);
      zeros_.push_back(b_.loop("z", 0, 2 * length, [&](Expr i) { b_.store(acc, {i}, ir::zero({f_.sum, 1})); }));
      const Expr runs = b_.let("runs", ir::floor_div(chunks_ + (pieces - 1), pieces));
      b_.loop("q", -1, bins + 1, [&](Expr q) {
        b_.loop("p", 0, pieces, [&](Expr p) {
          b_.if_then(q >= 0, [&] {
            stores_.push_back(b_.loop("i", p * piece, piece, [&](Expr i) {
              const Expr at = ir::floor_mod(q, 2) * length + i;
              f_.store_total({(first + q) * length + i}, ir::load(acc, {at}));
              b_.store(acc, {at}, ir::zero({f_.sum, 1}));
            }));
          });
          b_.if_then(q + 1 < bins, [&] {
            const Expr from = b_.let("next", ir::min(p * runs, chunks_));
            b_.loop("s", from, ir::min(runs, chunks_ - from),
                    [&](Expr c) { add_run(acc, ir::floor_mod(q + 1, 2) * length, c, first + q + 1); });
          });
        });
      });
    });
  }

  void sum_bin(const Expr& bin, const Expr& extent) {
    const Buffer acc = b_.alloc("acc", f_.sum, {lengths_.bin});
    zeros_.push_back(b_.loop("z", 0, lengths_.bin, [&](Expr i) { b_.store(acc, {i}, ir::zero({f_.sum, 1})); }));
    b_.loop("s", 0, chunks_, [&](Expr c) { add_run(acc, 0, c, bin); });
    stores_.push_back(
        b_.loop("i", 0, extent, [&](Expr i) { f_.store_total({bin * lengths_.bin + i}, ir::load(acc, {i})); }));
  }

  // Adds a bin's records in chunk c to the sums from acc[at] on.
  void add_run(const Buffer& acc, const Expr& at, const Expr& c, const Expr& bin) {
    const Expr from = b_.let("from", i64(ir::load(begin_, {c, bin})));
    runs_.push_back(b_.loop("r", from, i64(ir::load(begin_, {c, bin + 1})) - from, [&](Expr r) {
      const Expr word = b_.let("word", ir::load(sorted_, {c, r}));
      if (f_.sum != DType::f64) {
        b_.accumulate(acc, {at + i64(ir::binary(ir::BinaryOp::shr, word, ir::constant_int(DType::u64, 32)))},
                      ir::bitcast(DType::f32, ir::cast(DType::u32, word)));
      } else {
        b_.accumulate(acc, {at + i64(word)}, ir::bitcast(DType::f64, ir::load(sorted_values_, {c, r})));
      }
    }));
  }

  const GatherSizes sizes_;
  const GatherFrame f_;
  ir::KernelBuilder& b_;
  const ir::Target& target_;
  const Expr size_, count_;
  const PartitionLengths lengths_;
  const Expr bins_, chunks_;
  Buffer begin_, sorted_, sorted_values_, destinations_, cursor_;
  std::vector<Word> words_;
  Loop chunk_groups_ = 0, bin_groups_ = 0, places_ = 0;
  std::vector<Loop> zeros_, stores_;            // of sums
  std::vector<Loop> copies_, checks_, counts_;  // of a chunk's records
  std::vector<Loop> runs_;                      // of a bin's records in a chunk
};

// Sums up to this size are faster added to where they are than by parts. One thread, f32, 2^16 to 2^22 indices, an L2
// cache of 1 MiB and a last one of 32: "row" takes 0.5 to 0.8 of the time where dX has 2 MiB, 0.6 to 1.05 at 4, mostly
// 1.1 to 1.6 from 8 on. Threads share the parts, but not the row.
int64_t nearest_bytes(const ir::Target& target) {
  if (target.threads > 1) return target.l2_bytes;
  return std::max(target.l2_bytes, std::min(4 * target.l2_bytes, target.last_level_bytes / 8));
}

Fit fit(const Plan& plan, const ir::Target& target, bool any_shape) {
  const GatherSizes s(plan);
  if (!s.one_row()) return Fit::none;
  if (!target.gpu) return preferred_if(s.extent * s.sum_bytes > nearest_bytes(target));
  const Fit bins = gather_bins_fit(plan, target);
  if (!any_shape && bins != Fit::none) return Fit::none;
  return preferred_if(bins == Fit::preferred);
}

}  // namespace

PartitionLengths partition_lengths(DType sum, const Expr& size, const Expr& count, const ir::Target& target) {
  constexpr int64_t shortest_run = 64;
  const int64_t l2 = std::clamp<int64_t>(static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(target.l2_bytes))),
                                         1 << 10, 1 << 21);
  // Shares of the L2 cache: a quarter for the sums of two bins, a quarter for a chunk's records, an eighth for its
  // destinations.
  PartitionLengths l{.bin = l2 / 8 / size_of(sum), .chunk = l2 / 8 / size_of(sum)};
  const std::optional<int64_t> known = ir::as_int(size), records = ir::as_int(count);
  if (known) {
    // For a larger dX, larger bins are preferred to short runs.
    while (*known / l.bin > 1024 && l.bin * size_of(sum) < l2 / 2) l.bin *= 2;
    while (l.chunk * l.bin / shortest_run < *known && l.chunk * size_of(sum) < l2 / 2) l.chunk *= 2;
  }
  l.chunk = std::max(l.chunk, tile);
  if (records) l.chunk = std::min(l.chunk, round_up(*records, tile));
  if (known) l.run = std::clamp<int64_t>(l.chunk * l.bin / std::max<int64_t>(*known, 1), 8, 512);
  if (target.gpu) return l;
  // The epilogue of a task's pipeline (its last bin, or chunk) overlaps with nothing: few tasks, but enough to balance
  // the load where a core is busy elsewhere.
  const int64_t tasks = target.threads > 1 ? wanted_tasks(target) : 1;
  l.bins = known ? std::max<int64_t>(*known / l.bin / tasks, 1) : 8;
  l.chunks = records ? std::max<int64_t>(*records / l.chunk / tasks, 1) : 8;
  return l;
}

Strategy gather_partition() {
  return {.name = "partition", .fit = fit, .author = [](KernelFrame& frame, const ir::Target& target) {
            return author_nest(std::make_shared<Partition>(frame, target));
          }};
}

}  // namespace gradloom
