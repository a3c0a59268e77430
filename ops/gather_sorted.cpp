// The strategy "grouped" on a GPU, of GatherGrad and of a flat GatherElementsGrad: row and position of every index as one number, sorted by blocks in shared memory and merged pairwise; then
// every row of dX is summed, in index order, and written once, whatever the duplicates.
#include <algorithm>
#include <bit>
#include <limits>

#include "ir/schedule_gpu.h"
#include "ops/gather_sorted.h"

namespace gradloom {
namespace {

using ir::Buffer;
using ir::Expr;
using Index = GatherFrame::Index;
using Loop = ir::Schedule::Loop;

constexpr int64_t longest_run = 4096, shortest_run = 64;  // that a block sorts
constexpr int64_t position_bits = 32, none = std::numeric_limits<int64_t>::max();
constexpr int64_t rows_in_flight = 8, vector_bytes = 16;

Expr shifted(ir::BinaryOp op, Expr a, Expr count) { return ir::binary(op, std::move(a), std::move(count)); }
Expr shl(Expr a, Expr count) { return shifted(ir::BinaryOp::shl, std::move(a), std::move(count)); }
Expr shr(Expr a, Expr count) { return shifted(ir::BinaryOp::shr, std::move(a), std::move(count)); }

class SortedNest {
 public:
  explicit SortedNest(KernelFrame& frame)
      : f_(frame, gather_roles(frame.plan())), b_(f_.b), rows_(f_.axis_extent()), count_(*ir::as_int(f_.dy->dims[f_.roles.outer])),
        run_(static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(std::clamp(count_, shortest_run, longest_run))))),
        padded_(run_ * static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>((count_ + run_ - 1) / run_)))) {}

  void write() {
    keys_ = b_.alloc("keys", DType::i64, {2, padded_}, {.min = 0, .exclusive = true});
    first_ = b_.alloc("first", DType::i32, {rows_}, {.min = 0, .max = padded_, .exclusive = true});
    last_ = b_.alloc("last", DType::i32, {rows_}, {.min = 0, .max = padded_, .exclusive = true});
    sort_runs();
    int from = 0;
    for (int64_t length = run_; length < padded_; length *= 2, from = 1 - from) merge(length, from);
    mark(from);
    sum(from);
  }

 private:
  // Bitonic: for every stage, pairs a power of two apart are put in order.
  void sort_runs() {
    const int bits = std::countr_zero(static_cast<uint64_t>(run_));
    b_.loop("run", 0, padded_ / run_, [&](Expr run) {
      const Buffer own = b_.alloc("own", DType::i64, {run_}, {.min = 0, .exclusive = true});
      b_.loop("fill", 0, run_, [&](Expr i) {
        const Expr k = b_.let("k", run * run_ + i);
        b_.store(own, {i}, none);
        b_.if_then(k < count_, [&] { f_.checked_index({k}, [&](Expr j) { b_.store(own, {i}, shl(j, Expr(position_bits)) + k); }); });
      });
      b_.loop("stage", 0, bits, [&](Expr stage) {
        b_.loop("step", 0, bits, [&](Expr step) {
          const Expr bit = b_.let("bit", Expr(bits - 1) - step);
          b_.if_then(bit <= stage, [&] {
            b_.loop("pair", 0, run_ / 2, [&](Expr i) {
              const Expr apart = b_.let("apart", shl(1, bit));
              const Expr low = b_.let("low", shl(shr(i, bit), bit + 1) + (i & (apart - 1)));
              const Expr x = b_.let("x", ir::load(own, {low})), y = b_.let("y", ir::load(own, {low + apart}));
              const Expr down = b_.let("down", (shr(low, stage + 1) & Expr(1)) == 1);
              b_.store(own, {low}, ir::select(down, ir::max(x, y), ir::min(x, y)));
              b_.store(own, {low + apart}, ir::select(down, ir::min(x, y), ir::max(x, y)));
            });
          });
        });
      });
      b_.loop("keep", 0, run_, [&](Expr i) { b_.store(keys_, {0, run * run_ + i}, ir::load(own, {i})); });
    });
  }

  // Two runs of `length` become one: each key goes where as many of the other run's keys as are smaller let it.
  void merge(int64_t length, int from) {
    const int bits = std::countr_zero(static_cast<uint64_t>(length));
    b_.loop("merge", 0, padded_, [&](Expr i) {
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
          // Where there is no index, keys are equal: those of the first run stay before.
          b_.if_then((probed < key) | (second & (probed == key)), [&] { b_.store(smaller, {0}, more); });
        });
      });
      b_.store(keys_, {1 - from, ir::select(second, i - length, i) + ir::load(smaller, {0})}, key);
    });
  }

  Expr row_of(const Expr& key) const { return shr(key, Expr(position_bits)); }

  // Row r's keys are first[r] ... last[r] - 1.
  void mark(int from) {
    b_.loop("clear", 0, rows_, [&](Expr r) {
      b_.store(first_, {r}, ir::constant_int(DType::i32, 0));
      b_.store(last_, {r}, ir::constant_int(DType::i32, 0));
    });
    b_.loop("mark", 0, count_, [&](Expr i) {
      const Expr key = b_.let("key", ir::load(keys_, {from, i}));
      const Expr before = b_.let("before", ir::load(keys_, {from, i - 1}, i > 0, none)), after = b_.let("after", ir::load(keys_, {from, i + 1}, i < count_ - 1, none));
      const Expr row = b_.let("row", row_of(key));
      b_.if_then(key != none, [&] {
        b_.if_then(row_of(before) != row, [&] { b_.store(first_, {row}, ir::cast(DType::i32, i)); });
        b_.if_then(row_of(after) != row, [&] { b_.store(last_, {row}, ir::cast(DType::i32, i + 1)); });
      });
    });
  }

  // Without an inner dim, a row is one element.
  Index place(const Index& p, const Expr& row, const Expr& q) const {
    Index index = p;
    index.push_back(row);
    if (f_.roles.inner == 1) index.push_back(q);
    return index;
  }

  void sum(int from) {
    const auto value = [&](const Index& p, const Expr& q, const Expr& g) {
      const Expr position = b_.let("position", ir::load(keys_, {from, g}) & Expr((int64_t{1} << position_bits) - 1));
      const Index index = place(p, position, q);
      return b_.let("value", ir::cast(f_.sum, ir::load(f_.dy, index)));
    };
    b_.loops("p", f_.outer_dims(f_.dx), [&](const Index& p) {
      b_.loop("r", 0, rows_, [&](Expr r) {
        b_.loop("q", 0, f_.roles.inner == 1 ? f_.dx->dims.back() : Expr(1), [&](Expr q) {
          const Expr begin = b_.let("begin", ir::cast(DType::i64, ir::load(first_, {r}))), end = b_.let("end", ir::cast(DType::i64, ir::load(last_, {r})));
          const Buffer acc = b_.alloc("acc", f_.sum, {1}, {}, ir::Space::registers);
          b_.store(acc, {0}, ir::zero({f_.sum, 1}));
          const Expr whole = b_.let("whole", ir::floor_div(end - begin, Expr(rows_in_flight)));
          b_.loop("g", 0, whole, [&](Expr g) {
            std::vector<Expr> values;
            for (int64_t k = 0; k < rows_in_flight; ++k) values.push_back(value(p, q, begin + g * rows_in_flight + k));
            for (const Expr& v : values) b_.accumulate(acc, {0}, v);
          });
          b_.loop("g", begin + whole * rows_in_flight, end - begin - whole * rows_in_flight, [&](Expr g) { b_.accumulate(acc, {0}, value(p, q, g)); });
          f_.store_total(place(p, r, q), ir::load(acc, {0}));
        });
      });
    });
  }

  const GatherFrame f_;
  ir::KernelBuilder& b_;
  const Expr rows_;
  const int64_t count_, run_, padded_;
  Buffer keys_;          // [which, i]: row and position
  Buffer first_, last_;  // by row
};

}  // namespace

void author_gather_sorted(KernelFrame& frame) { SortedNest(frame).write(); }

bool schedule_gather_sorted(ir::Schedule& s, const Plan& plan, const ir::Target& target) {
  if (s.loops("run").empty()) return false;
  s.bind(s.loop("run"), ir::ForKind::grid);
  for (const char* name : {"fill", "pair", "keep"}) s.bind(s.loop(name), ir::ForKind::thread);
  std::vector<Loop> flat = s.loops("merge");
  flat.insert(flat.end(), {s.loop("clear"), s.loop("mark")});
  for (const Loop loop : flat) ir::schedule_gpu(s, loop, target);
  // 16 bytes of a row a thread.
  Loop one = s.loop("r"), columns = s.loop("q");
  const int64_t lanes = vector_bytes / size_of(plan.views[2].dtype);
  if (*ir::as_int(s.get(columns).extent) % lanes == 0) {
    const ir::Schedule::Split cut = s.split(columns, lanes);
    s.vectorize(cut.inner);
    columns = cut.outer;
  }
  for (int p = gather_roles(plan).outer; p-- > 0;) one = s.fuse(s.loop("p" + std::to_string(p)), one);
  const ir::Schedule::Split cut = s.split_guarded(s.fuse(one, columns), target.block_threads);
  s.bind(cut.outer, ir::ForKind::grid);
  s.bind(cut.inner, ir::ForKind::thread);
  return true;
}

}  // namespace gradloom
