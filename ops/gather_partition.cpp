// The strategy "partition" of a flat scatter into a dX larger than the cache: indices and values are first sorted, stably, into bins of neighbouring
// destinations, through buffers of whole cache lines; then each bin is summed in cache and streamed out.
#include "ops/gather_common.h"

namespace gradloom {
namespace {

using ir::Buffer;
using ir::Expr;

constexpr int64_t staged_records = 16;  // a bin's records on their way: two lines of 8-byte words

// One array of 8-byte words a record. f32 sums need one word (offset in the bin, value); f64 sums two.
struct Word {
  Buffer staged, sorted;
  std::function<Expr(Expr offset, Expr value)> pack;
};

Expr u64(Expr e) { return ir::cast(DType::u64, std::move(e)); }

class Partition {
 public:
  Partition(KernelFrame& frame, int chunks)
      : f_(frame, gather_roles(frame.plan())), b_(f_.b), chunks_(chunks), bin_(int64_t{1} << (f_.sum == DType::f64 ? 14 : 15)), size_(f_.dx->dims[0]),
        count_(f_.dy->dims[0]), bins_(ir::floor_div(size_ + (bin_ - 1), bin_)) {}

  void write() {
    // A chunk's numbers lie side by side: no two threads write to one line.
    counts_ = b_.alloc("counts", DType::i64, {chunks_, bins_}, {.min = 0, .max = count_});
    begin_ = b_.alloc("begin", DType::i64, {chunks_, bins_});
    cursor_ = b_.alloc("cursor", DType::i64, {chunks_, bins_});
    const Expr capacity = count_ + bins_ * (chunks_ * staged_records);
    for (int w = 0; w < (f_.sum == DType::f64 ? 2 : 1); ++w) {
      const std::string suffix = w == 0 ? "" : "_values";
      words_.push_back({b_.alloc("staged" + suffix, DType::u64, {chunks_, bins_, staged_records}),
                        b_.alloc("sorted" + suffix, DType::u64, {capacity}, {.exclusive = true}), {}});
    }
    if (words_.size() == 1) {
      words_[0].pack = [](Expr offset, Expr value) {
        return ir::binary(ir::BinaryOp::bit_or, ir::binary(ir::BinaryOp::shl, u64(offset), ir::constant_int(DType::u64, 32)),
                          u64(ir::bitcast(DType::u32, value)));
      };
    } else {
      words_[0].pack = [](Expr offset, Expr) { return u64(offset); };
      words_[1].pack = [](Expr, Expr value) { return ir::bitcast(DType::u64, value); };
    }
    count();
    lay_out();
    place();
    sum();
  }

 private:
  // Every index of chunk c, checked.
  void indices(const std::string& name, const Expr& c, const std::function<void(Expr k, Expr j)>& body) {
    const Expr chunk = ir::floor_div(count_ + (chunks_ - 1), Expr(chunks_));
    const Expr first = ir::min(c * chunk, count_);
    b_.loop(name, first, ir::min(chunk, count_ - first), [&](Expr k) { f_.checked_index({k}, [&](Expr j) { body(k, j); }); });
  }
  Expr bin_of(const Expr& j) const { return ir::floor_div(j, Expr(bin_)); }

  void count() {
    b_.loop("zc", 0, chunks_, [&](Expr c) { b_.loop("zb", 0, bins_, [&](Expr bin) { b_.store(counts_, {c, bin}, Expr(0)); }); });
    b_.loop("hc", 0, chunks_, [&](Expr c) { indices("h", c, [&](Expr, Expr j) { b_.accumulate(counts_, {c, bin_of(j)}, Expr(1)); }); });
  }

  // Bins in order, chunks in order within a bin, each on a line of its own.
  void lay_out() {
    const Buffer running = b_.alloc("running", DType::i64, {1}, {}, ir::Space::registers);
    b_.store(running, {0}, Expr(0));
    b_.loop("lb", 0, bins_, [&](Expr bin) {
      b_.loop("lc", 0, chunks_, [&](Expr c) {
        const Expr start = b_.let("start", ir::load(running, {0}));
        b_.store(begin_, {c, bin}, start);
        b_.store(cursor_, {c, bin}, start);
        b_.store(running, {0}, start + ir::floor_div(ir::load(counts_, {c, bin}) + (staged_records - 1), staged_records) * staged_records);
      });
    });
  }

  void place() {
    b_.loop("kc", 0, chunks_, [&](Expr c) {
      indices("k", c, [&](Expr k, Expr j) {
        const Expr bin = b_.let("bin", bin_of(j)), slot = b_.let("slot", ir::load(cursor_, {c, bin}));
        b_.store(cursor_, {c, bin}, slot + 1);
        const Expr lane = b_.let("lane", ir::floor_mod(slot, staged_records));
        const Expr value = b_.let("value", ir::cast(f_.sum, ir::load(f_.dy, {k})));
        for (const Word& word : words_) b_.store(word.staged, {c, bin, lane}, word.pack(j - bin * bin_, value));
        b_.if_then(lane == staged_records - 1, [&] { flush(c, bin, slot, staged_records, "full"); });
      });
      b_.loop("kb", 0, bins_, [&](Expr bin) {
        const Expr end = b_.let("end", ir::load(cursor_, {c, bin}));
        flush(c, bin, end, ir::floor_mod(end, staged_records), "rest");
      });
    });
  }

  // The staged records of a bin's line that `slot` is in.
  void flush(const Expr& c, const Expr& bin, const Expr& slot, const Expr& records, const std::string& name) {
    const Expr line = b_.let("line", ir::floor_div(slot, staged_records) * staged_records);
    for (size_t w = 0; w < words_.size(); ++w)
      b_.loop(name + std::to_string(w), 0, records, [&](Expr i) { b_.store(words_[w].sorted, {line + i}, ir::load(words_[w].staged, {c, bin, i})); });
  }

  // Whole bins side by side, then what is left of dX.
  void sum() {
    b_.loop("b", 0, ir::floor_div(size_, Expr(bin_)), [&](Expr bin) { sum_bin(bin, bin_); });
    const Expr rest = ir::floor_mod(size_, Expr(bin_));
    if (ir::as_int(size_) && *ir::as_int(size_) % bin_ == 0) return;
    b_.if_then(rest > 0, [&] { sum_bin(ir::floor_div(size_, Expr(bin_)), rest); });
  }

  void sum_bin(const Expr& bin, const Expr& extent) {
    const Buffer acc = b_.alloc("acc", f_.sum, {bin_});
    b_.loop("z", 0, bin_, [&](Expr i) { b_.store(acc, {i}, ir::zero({f_.sum, 1})); });
    b_.loop("c", 0, chunks_, [&](Expr c) {
      const Expr from = b_.let("from", ir::load(begin_, {c, bin}));
      b_.loop("r", from, ir::load(cursor_, {c, bin}) - from, [&](Expr r) {
        const Expr word = b_.let("word", ir::load(words_[0].sorted, {r}));
        if (words_.size() == 1) {
          const Expr offset = ir::cast(DType::i64, ir::binary(ir::BinaryOp::shr, word, ir::constant_int(DType::u64, 32)));
          b_.accumulate(acc, {offset}, ir::bitcast(DType::f32, ir::cast(DType::u32, word)));
        } else {
          b_.accumulate(acc, {ir::cast(DType::i64, word)}, ir::bitcast(DType::f64, ir::load(words_[1].sorted, {r})));
        }
      });
    });
    b_.loop("i", 0, extent, [&](Expr i) { f_.store_total({bin * bin_ + i}, ir::load(acc, {i})); });
  }

  const GatherFrame f_;
  ir::KernelBuilder& b_;
  const int64_t chunks_, bin_;
  const Expr size_, count_, bins_;
  Buffer counts_, begin_, cursor_;
  std::vector<Word> words_;
};

}  // namespace

void author_gather_partition(KernelFrame& frame, const ir::Target& target) { Partition(frame, target.threads).write(); }

}  // namespace gradloom
