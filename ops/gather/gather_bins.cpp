// The strategy "bins" on a GPU, for a flat dX of a known shape: thread blocks sort runs of indices by bin (a range of
// neighbouring destinations), stably; then one block per bin accumulates into sums in shared memory, run after run, in
// index order.
#include <algorithm>
#include <bit>
#include <limits>

#include "ops/gather/gather_strategies.h"
#include "ops/patterns/block_sort.h"
#include "ops/patterns/integer_math.h"

namespace gradloom {
namespace {

using ir::Buffer;
using ir::Expr;
using ir::Loop;

constexpr int64_t longest_run = 4096, shortest_run = 64;  // indices that a block sorts
constexpr int64_t tile = 2048;                            // records of a bin that are staged in shared memory at a time
constexpr int64_t group = 32;                             // runs whose records one thread counts
constexpr int64_t most_bins = 4096, most_runs = 4096;

int64_t bin_elements(const Plan& plan, const ir::Target& target) {
  return static_cast<int64_t>(
      std::bit_floor(static_cast<uint64_t>(target.shared_bytes / 3 / size_of(accumulator_of(plan.views[2].dtype)))));
}
int64_t run_length(int64_t count) {
  return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(std::clamp(count, shortest_run, longest_run))));
}

class BinNest {
 public:
  BinNest(KernelFrame& frame, const ir::Target& target)
      : f_(frame, gather_roles(frame.plan())),
        b_(f_.b),
        size_(*ir::as_int(f_.axis_extent())),
        count_(*ir::as_int(f_.dy->dims[0])),
        bin_(bin_elements(frame.plan(), target)),
        bins_(ceil_div(size_, bin_)),
        run_(run_length(count_)),
        runs_(ceil_div(count_, run_)) {}

  void write() {
    starts_ = b_.alloc("starts", DType::i32, {bins_ + 1, runs_}, {.min = 0, .max = run_});
    offsets_ = b_.alloc("offsets", DType::i32, {runs_ * run_}, {.min = 0, .max = bin_ - 1});
    values_ = b_.alloc("sorted_values", f_.sum, {runs_ * run_});
    grids_.push_back(b_.loop("run", 0, runs_, [&](Expr run) { sort(run); }));
    grids_.push_back(b_.loop("bin", 0, bins_, [&](Expr bin) { sum(bin); }));
  }

  void schedule(ir::Schedule& s) const {
    for (const Loop loop : grids_) s.bind(loop, ir::ForKind::grid);
    for (const Loop loop : threads_) s.bind(loop, ir::ForKind::thread);
    s.bind(adder_, ir::ForKind::warp);
    s.bind(lanes_, ir::ForKind::lane);
  }

 private:
  Expr wide(const Expr& e) const { return ir::cast(DType::i64, e); }

  // Sorts keys of bin and position packed into one integer: keys are unique, so the order within a bin is index order.
  void sort(const Expr& run) {
    const Buffer own = b_.alloc("own", DType::i32, {run_}, {.min = 0, .exclusive = true}),
                 places = b_.alloc("places", DType::i32, {run_}, {.min = 0, .max = size_ - 1});
    threads_.push_back(b_.loop("fill", 0, run_, [&](Expr i) {
      const Expr k = b_.let("k", run * run_ + i);
      b_.store(own, {i}, ir::cast(DType::i32, i + bins_ * run_));  // sentinel: past all bins
      b_.store(places, {i}, ir::constant_int(DType::i32, 0));
      b_.if_then(k < count_, [&] {
        f_.checked_index({k}, [&](const Expr& j) {
          b_.store(own, {i}, ir::cast(DType::i32, ir::floor_div(j, Expr(bin_)) * run_ + i));
          b_.store(places, {i}, ir::cast(DType::i32, j));
        });
      });
    }));
    threads_.push_back(author_block_sort(b_, own, run_));
    threads_.push_back(b_.loop("keep", 0, run_, [&](Expr i) {
      const Expr key = b_.let("key", wide(ir::load(own, {i})));
      const Expr bin = b_.let("of_bin", ir::floor_div(key, Expr(run_))),
                 position = b_.let("position", ir::floor_mod(key, Expr(run_)));
      const Expr k = b_.let("k", run * run_ + position);
      b_.if_then((bin < bins_) & (k < count_), [&] {
        b_.store(offsets_, {run * run_ + i}, ir::cast(DType::i32, wide(ir::load(places, {position})) - bin * bin_));
        b_.store(values_, {run * run_ + i}, ir::cast(f_.sum, ir::load(f_.dy, {k})));
      });
    }));
    const int bits = std::countr_zero(static_cast<uint64_t>(run_));
    threads_.push_back(b_.loop("first", 0, bins_ + 1, [&](Expr bin) {
      const Buffer smaller = b_.alloc("smaller", DType::i64, {1}, {}, ir::Space::registers);
      b_.store(smaller, {0}, 0);
      b_.loop("probe", 0, bits + 1, [&](Expr step) {
        const Expr more = b_.let("more", ir::load(smaller, {0}) + ir::binary(ir::BinaryOp::shl, 1, Expr(bits) - step));
        b_.if_then(more <= run_, [&] {
          b_.if_then(wide(ir::load(own, {more - 1})) < bin * run_, [&] { b_.store(smaller, {0}, more); });
        });
      });
      b_.store(starts_, {bin, run}, ir::cast(DType::i32, ir::load(smaller, {0})));
    }));
  }

  Expr records(const Expr& bin, const Expr& run) const {
    return wide(ir::load(starts_, {bin + 1, run})) - wide(ir::load(starts_, {bin, run}));
  }

  void sum(const Expr& bin) {
    const int64_t groups = ceil_div(runs_, group);
    const Buffer acc = b_.alloc("acc", f_.sum, {bin_}), before = b_.alloc("before", DType::i64, {groups * group}),
                 in_groups = b_.alloc("in_groups", DType::i64, {groups});
    const Buffer offsets = b_.alloc("tile_offsets", DType::i32, {tile}, {.min = 0, .max = bin_ - 1, .exclusive = true});
    const Buffer values = b_.alloc("tile_values", f_.sum, {tile}, {.exclusive = true});
    threads_.push_back(b_.loop("z", 0, bin_, [&](Expr i) { b_.store(acc, {i}, ir::zero({f_.sum, 1})); }));
    // Exclusive prefix sum of the bin's records over the runs: within each group, then over the groups.
    threads_.push_back(b_.loop("in_group", 0, groups, [&](Expr g) {
      const Buffer running = b_.alloc("running", DType::i64, {1}, {}, ir::Space::registers);
      b_.store(running, {0}, 0);
      b_.loop("r", 0, group, [&](Expr i) {
        const Expr r = b_.let("r", g * group + i);
        b_.store(before, {r}, ir::load(running, {0}));
        b_.if_then(r < runs_, [&] { b_.accumulate(running, {0}, records(bin, r)); });
      });
      b_.store(in_groups, {g}, ir::load(running, {0}));
    }));
    const Buffer total = b_.alloc("total", DType::i64, {1}, {}, ir::Space::registers);
    b_.store(total, {0}, 0);
    b_.loop("g", 0, groups, [&](Expr g) {
      const Expr own = b_.let("of_group", ir::load(in_groups, {g}));
      b_.store(in_groups, {g}, ir::load(total, {0}));
      b_.accumulate(total, {0}, own);
    });
    const Expr all = b_.let("all", ir::load(total, {0}));
    b_.loop("tile", 0, ir::floor_div(all + (tile - 1), Expr(tile)), [&](Expr t) {
      const Expr first = b_.let("first", t * tile), left = b_.let("left", ir::min(all - first, Expr(tile)));
      threads_.push_back(b_.loop("bring", 0, runs_, [&](Expr r) {
        const Expr at = b_.let(
            "at", ir::load(before, {r}) + ir::load(in_groups, {ir::floor_div(r, Expr(group))}) - first);  // tile-local
        const Expr from = b_.let("from", ir::max(at, 0)), to = b_.let("to", ir::min(at + records(bin, r), left));
        const Expr source = b_.let("source", r * run_ + wide(ir::load(starts_, {bin, r})) - at);
        b_.loop("x", from, to - from, [&](Expr x) {
          b_.store(offsets, {x}, ir::load(offsets_, {source + x}));
          b_.store(values, {x}, ir::load(values_, {source + x}));
        });
      }));
      adder_ = b_.loop("adder", 0, 1, [&](Expr) {
        b_.loop("x0", 0, ir::floor_div(left + (ir::warp_lanes - 1), Expr(ir::warp_lanes)), [&](Expr outer) {
          lanes_ = b_.loop("x1", 0, ir::warp_lanes, [&](Expr lane) {
            const Expr x = b_.let("x", outer * ir::warp_lanes + lane);
            b_.if_then(x < left, [&] { b_.accumulate(acc, {wide(ir::load(offsets, {x}))}, ir::load(values, {x})); });
          });
        });
      });
    });
    threads_.push_back(b_.loop("i", 0, bin_, [&](Expr i) {
      const Expr place = b_.let("place", bin * bin_ + i);
      const auto put = [&] { f_.store_total({place}, ir::load(acc, {i})); };
      size_ % bin_ == 0 ? put() : b_.if_then(place < size_, put);
    }));
  }

  const GatherFrame f_;
  ir::KernelBuilder& b_;
  const int64_t size_, count_, bin_, bins_, run_, runs_;
  Buffer starts_;            // [bin, run]: offset of the bin's first record in the run
  Buffer offsets_, values_;  // records of all runs: index in the bin, and value to add
  std::vector<Loop> grids_, threads_;
  Loop adder_ = 0, lanes_ = 0;
};

Fit fit(const Plan& plan, const ir::Target& target, bool any_shape) {
  return target.gpu && !any_shape ? gather_bins_fit(plan, target) : Fit::none;
}

}  // namespace

// Bins read the indices once, which is faster than atomic adds; few indices are sorted as fast.
Fit gather_bins_fit(const Plan& plan, const ir::Target& target) {
  constexpr int64_t fewest = 1 << 16;  // indices, where bins are preferred
  if (!GatherSizes(plan).one_row() || plan.views[2].dims[0] > std::numeric_limits<int32_t>::max()) return Fit::none;
  const int64_t count = plan.views[1].dims[0];
  if (ceil_div(plan.views[2].dims[0], bin_elements(plan, target)) > most_bins ||
      ceil_div(count, run_length(count)) > most_runs)
    return Fit::none;
  return preferred_if(count >= fewest);
}

Strategy gather_bins() {
  return {.name = "bins", .fit = fit, .author = [](KernelFrame& frame, const ir::Target& target) {
            return author_nest(std::make_shared<BinNest>(frame, target));
          }};
}

}  // namespace gradloom
