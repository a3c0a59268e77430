// The strategies "sorted" and "chunked" on a GPU (rows, or single elements of a flat dX), for kernels of a known shape:
// row and position of every index are packed into one key, sorted by thread blocks in shared memory and merged
// pairwise; then every row of dX is summed, in index order, and written once, whatever the duplicates. "chunked" sums
// each long group by a thread block: in-order sums of chunks of equal length in parallel, then the chunk sums in order.
#include <algorithm>
#include <bit>
#include <limits>

#include "ir/schedule/schedule_gpu.h"
#include "ops/gather/gather_strategies.h"
#include "ops/patterns/block_sort.h"
#include "ops/patterns/integer_math.h"
#include "ops/patterns/unrolled_sum.h"

namespace gradloom {
namespace {

using ir::Buffer;
using ir::Expr;
using Index = GatherFrame::Index;
using ir::Loop;

constexpr int64_t longest_run = 4096, shortest_run = 64;  // keys that a block sorts
constexpr int64_t position_bits = 32, none = std::numeric_limits<int64_t>::max();
constexpr int64_t rows_in_flight = 8, vector_bytes = 16;
constexpr int64_t chunks = 32, chunk_columns = 32, shortest_long_group = 64, longest_short_group = 1024;

Expr shifted(ir::BinaryOp op, Expr a, Expr count) { return ir::binary(op, std::move(a), std::move(count)); }
Expr shl(Expr a, Expr count) { return shifted(ir::BinaryOp::shl, std::move(a), std::move(count)); }
Expr shr(Expr a, Expr count) { return shifted(ir::BinaryOp::shr, std::move(a), std::move(count)); }

class SortedNest {
 public:
  SortedNest(KernelFrame& frame, const ir::Target& target, bool chunked)
      : target_(target),
        chunked_(chunked),
        f_(frame, gather_roles(frame.plan())),
        b_(f_.b),
        rows_(f_.axis_extent()),
        count_(*ir::as_int(f_.dy->dims[f_.roles.outer])),
        run_(static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(std::clamp(count_, shortest_run, longest_run))))),
        padded_(run_ * static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(ceil_div(count_, run_))))) {}

  void write() {
    keys_ = b_.alloc("keys", DType::i64, {2, padded_}, {.min = 0, .exclusive = true});
    first_ = b_.alloc("first", DType::i32, {rows_}, {.min = 0, .max = padded_, .exclusive = true});
    last_ = b_.alloc("last", DType::i32, {rows_}, {.min = 0, .max = padded_, .exclusive = true});
    sort_runs();
    int from = 0;
    for (int64_t length = run_; length < padded_; length *= 2, from = 1 - from) merge(length, from);
    mark(from);
    if (chunked_) find_long_groups();
    sum(from);
    if (chunked_) sum_long_groups(from);
  }

  void schedule(ir::Schedule& s) const {
    s.bind(runs_, ir::ForKind::grid);
    for (const Loop loop : threads_) s.bind(loop, ir::ForKind::thread);
    for (const Loop loop : flat_) ir::schedule_gpu(s, loop, target_);
    if (chunked_) schedule_long_groups(s);
    // Each thread has 16 bytes of a row.
    Loop one = sums_, columns = columns_;
    const int64_t lanes = vector_bytes / size_of(f_.dx->dtype);
    if (*ir::as_int(s.get(columns).extent) % lanes == 0) {
      const ir::Schedule::Split cut = s.split(columns, lanes);
      s.vectorize(cut.inner);
      columns = cut.outer;
    }
    for (size_t p = outer_.size(); p-- > 0;) one = s.fuse(outer_[p], one);
    const ir::Schedule::Split cut = s.split_guarded(s.fuse(one, columns), target_.block_threads);
    s.bind(cut.outer, ir::ForKind::grid);
    s.bind(cut.inner, ir::ForKind::thread);
  }

 private:
  void schedule_long_groups(ir::Schedule& s) const {
    for (const Loop loop : long_flat_) ir::schedule_gpu(s, loop, target_);
    Loop one = long_grid_[0];  // the innermost first
    for (size_t i = 1; i < long_grid_.size(); ++i) one = s.fuse(long_grid_[i], one);
    s.bind(one, ir::ForKind::grid);
    s.bind(s.fuse(chunks_, chunk_columns_), ir::ForKind::thread);
    s.bind(chunk_sums_, ir::ForKind::thread);
  }

  void sort_runs() {
    runs_ = b_.loop("run", 0, padded_ / run_, [&](Expr run) {
      const Buffer own = b_.alloc("own", DType::i64, {run_}, {.min = 0, .exclusive = true});
      threads_.push_back(b_.loop("fill", 0, run_, [&](Expr i) {
        const Expr k = b_.let("k", run * run_ + i);
        b_.store(own, {i}, none);
        b_.if_then(k < count_, [&] {
          f_.checked_index({k}, [&](Expr j) { b_.store(own, {i}, shl(j, Expr(position_bits)) + k); });
        });
      }));
      threads_.push_back(author_block_sort(b_, own, run_));
      threads_.push_back(b_.loop("keep", 0, run_, [&](Expr i) {
        b_.store(keys_, {0, run * run_ + i}, ir::load(own, {i}));
      }));
    });
  }

  // Merges pairs of runs of `length`: a key's output index is its index in its own run plus the number of smaller keys
  // in the other run, found by binary search.
  void merge(int64_t length, int from) {
    const int bits = std::countr_zero(static_cast<uint64_t>(length));
    flat_.push_back(b_.loop("merge", 0, padded_, [&](Expr i) {
      const Expr base = b_.let("base", ir::floor_div(i, Expr(2 * length)) * (2 * length));
      const Expr second = b_.let("second", i - base >= length);
      const Expr other = b_.let("other", ir::select(second, base, base + length));
      const Expr key = b_.let("key", ir::load(keys_, {from, i}));
      const Buffer smaller = b_.alloc("smaller", DType::i64, {1}, {}, ir::Space::registers);
      b_.store(smaller, {0}, 0);
      b_.loop("probe", 0, bits + 1, [&](Expr step) {
        const Expr more = b_.let("more", ir::load(smaller, {0}) + shl(1, Expr(bits) - step));
        b_.if_then(more <= length, [&] {
          const Expr probed = b_.let("probed", ir::load(keys_, {from, other + more - 1}));
          // Padding keys (no index) are equal: those of the first run come first.
          b_.if_then((probed < key) | (second & (probed == key)), [&] { b_.store(smaller, {0}, more); });
        });
      });
      b_.store(keys_, {1 - from, ir::select(second, i - length, i) + ir::load(smaller, {0})}, key);
    }));
  }

  bool one_row() const { return ir::as_int(rows_) == 1; }
  Expr row_of(const Expr& key) const { return shr(key, Expr(position_bits)); }

  // Row r's keys are first[r] ... last[r] - 1.
  void mark(int from) {
    flat_.push_back(b_.loop("clear", 0, rows_, [&](Expr r) {
      b_.store(first_, {r}, ir::constant_int(DType::i32, 0));
      b_.store(last_, {r}, ir::constant_int(DType::i32, 0));
    }));
    flat_.push_back(b_.loop("mark", 0, count_, [&](Expr i) {
      const Expr key = b_.let("key", ir::load(keys_, {from, i}));
      const Expr before = b_.let("before", ir::load(keys_, {from, i - 1}, i > 0, none)),
                 after = b_.let("after", ir::load(keys_, {from, i + 1}, i < count_ - 1, none));
      const Expr row = b_.let("row", row_of(key));
      b_.if_then(key != none, [&] {
        b_.if_then(row_of(before) != row, [&] { b_.store(first_, {row}, ir::cast(DType::i32, i)); });
        b_.if_then(row_of(after) != row, [&] { b_.store(last_, {row}, ir::cast(DType::i32, i + 1)); });
      });
    }));
  }

  // At most one group of more than `long_` positions begins in each aligned range of `long_` positions, so a range is
  // the slot of its group. An only row has slot 0.
  void find_long_groups() {
    const int64_t slots = one_row() ? 1 : ceil_div(count_, long_);
    long_rows_ = b_.alloc("long_rows", DType::i64, {slots},
                          {.min = -slots, .max = rows_ - 1, .injective = true, .exclusive = true});
    long_flat_.push_back(b_.loop("none", 0, slots, [&](Expr i) { b_.store(long_rows_, {i}, Expr(-1) - i); }));
    long_flat_.push_back(b_.loop("find", 0, rows_, [&](Expr r) {
      const Expr begin = b_.let("begin", ir::cast(DType::i64, ir::load(first_, {r}))),
                 end = b_.let("end", ir::cast(DType::i64, ir::load(last_, {r})));
      b_.if_then(end - begin > long_,
                 [&] { b_.store(long_rows_, {ir::min(ir::floor_div(begin, Expr(long_)), Expr(slots - 1))}, r); });
    }));
  }

  void sum_long_groups(int from) {
    const int64_t width = f_.roles.inner == 1 ? *ir::as_int(f_.dx->dims.back()) : 1,
                  tile = std::min(chunk_columns, width), tiles = ceil_div(width, tile);
    const std::vector<Loop> outer = b_.loops("lp", f_.outer_dims(f_.dx), [&](const Index& p) {
      const auto in_slot = [&](const Expr& slot) {
        const auto in_tile = [&](const Expr& t) {
          const Expr row = b_.let("row", ir::load(long_rows_, {slot}));
          b_.if_then(row >= 0, [&] {
            const Buffer sums = b_.alloc("chunk_sums", f_.sum, {chunks, tile});
            const auto column = [&](const Expr& c, const std::function<void(const Expr&)>& body) {
              const Expr q = b_.let("q", t * tile + c);
              width % tile == 0 ? body(q) : b_.if_then(q < width, [&] { body(q); });
            };
            chunks_ = b_.loop("lc", 0, chunks, [&](Expr chunk) {
              chunk_columns_ = b_.loop("lq", 0, tile, [&](Expr c) {
                column(c, [&](const Expr& q) {
                  const Expr begin = b_.let("begin", ir::cast(DType::i64, ir::load(first_, {row}))),
                             end = b_.let("end", ir::cast(DType::i64, ir::load(last_, {row})));
                  const Expr length = b_.let("length", ir::floor_div(end - begin + (chunks - 1), Expr(chunks)));
                  const Expr start = b_.let("start", ir::min(begin + chunk * length, end));
                  b_.store(sums, {chunk, c}, in_flight(p, q, start, ir::min(length, end - start), from));
                });
              });
            });
            chunk_sums_ = b_.loop("ls", 0, tile, [&](Expr c) {
              column(c, [&](const Expr& q) {
                const Buffer acc = b_.alloc("acc", f_.sum, {1}, {}, ir::Space::registers);
                b_.store(acc, {0}, ir::zero({f_.sum, 1}));
                b_.loop("chunk", 0, chunks, [&](Expr chunk) { b_.accumulate(acc, {0}, ir::load(sums, {chunk, c})); });
                f_.store_total(place(p, row, q), ir::load(acc, {0}));
              });
            });
          });
        };
        if (tiles == 1) return in_tile(0);
        long_grid_.push_back(b_.loop("lt", 0, tiles, in_tile));
      };
      // An only row has the same index in all slots, so that their independence could not be proved; the grid still
      // needs one loop.
      if (one_row() && (tiles > 1 || f_.roles.outer > 0)) return in_slot(0);
      long_grid_.push_back(b_.loop("slot", 0, long_rows_->dims[0], in_slot));
    });
    long_grid_.insert(long_grid_.end(), outer.rbegin(), outer.rend());
  }

  // Without an inner dim, a row is one element.
  Index place(const Index& p, const Expr& row, const Expr& q) const {
    return f_.joined(p, {row}, f_.roles.inner == 1 ? Index{q} : Index{});
  }

  // The in-order sum of dY at the positions of the keys from `begin` on, with several loads in flight.
  Expr in_flight(const Index& p, const Expr& q, const Expr& begin, const Expr& count, int from) {
    return author_unrolled_sum(b_, f_.sum, "g", begin, count, rows_in_flight, [&](const Expr& g) {
      const Expr position = b_.let("position", ir::load(keys_, {from, g}) & Expr((int64_t{1} << position_bits) - 1));
      return ir::cast(f_.sum, ir::load(f_.dy, place(p, position, q)));
    });
  }

  // Long groups add nothing here: sum_long_groups sums them.
  void sum(int from) {
    outer_ = b_.loops("p", f_.outer_dims(f_.dx), [&](const Index& p) {
      sums_ = b_.loop("r", 0, rows_, [&](Expr r) {
        columns_ = b_.loop("q", 0, f_.roles.inner == 1 ? f_.dx->dims.back() : Expr(1), [&](Expr q) {
          const Expr begin = b_.let("begin", ir::cast(DType::i64, ir::load(first_, {r}))),
                     end = b_.let("end", ir::cast(DType::i64, ir::load(last_, {r})));
          const Expr count =
              chunked_ ? b_.let("count", ir::select(end - begin > long_, Expr(0), end - begin)) : end - begin;
          f_.store_total(place(p, r, q), in_flight(p, q, begin, count, from));
        });
      });
    });
  }

  const ir::Target& target_;
  const bool chunked_;
  const GatherFrame f_;
  ir::KernelBuilder& b_;
  const Expr rows_;
  const int64_t count_, run_, padded_;
  const int64_t long_ =
      std::clamp(count_ / 4096, shortest_long_group, longest_short_group);  // longer groups are summed in chunks
  Buffer keys_;          // [buffer, i]: row and position; double buffered
  Buffer first_, last_;  // by row
  Buffer long_rows_;     // by range of positions; negative: none

  Loop runs_ = 0, sums_ = 0, columns_ = 0;
  std::vector<Loop> threads_, flat_, outer_;
  // Of long groups.
  Loop chunks_ = 0, chunk_columns_ = 0, chunk_sums_ = 0;
  std::vector<Loop> long_flat_, long_grid_;
};

Fit fit(const Plan& plan, const ir::Target& target, bool any_shape) {
  return target.gpu && !any_shape && GatherSizes(plan).sortable() ? Fit::preferred : Fit::none;
}

template <bool chunked>
ScheduleNest author(KernelFrame& frame, const ir::Target& target) {
  return author_nest(std::make_shared<SortedNest>(frame, target, chunked));
}

}  // namespace

Strategy gather_sorted() { return {.name = "sorted", .fit = fit, .author = author<false>}; }
Strategy gather_chunked() {
  return {.name = "chunked", .level = Determinism::run_to_run, .fit = fit, .author = author<true>};
}

}  // namespace gradloom
