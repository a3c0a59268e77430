// The strategy "touched_rows" of GatherGrad: accumulates into few rows of dX, touching no other. All columns have the
// same indices, so positions are grouped by row once, as "touched" does it, in the first column of dX; then every row
// that is named is summed in registers and stored once.
#include <optional>

#include "ops/gather/gather_touched.h"

namespace gradloom {
namespace {

using ir::Buffer;
using ir::Expr;
using ir::Loop;
using Index = GatherFrame::Index;

class TouchedRows {
 public:
  TouchedRows(KernelFrame& frame, const ir::Target& target)
      : f_(frame, gather_roles(frame.plan())), b_(f_.b), target_(target), sizes_(frame.plan()) {
    count_ = 1;
    for (const Expr& dim : f_.middle_dims()) count_ = count_ * dim;
  }

  void write() {
    author_touched(f_, target_, count_, [&](bool shared) {
      group();
      sum(shared);
    });
  }

  void schedule(ir::Schedule& s) const {
    if (f_.roles.inner > 0) {
      const int lanes = target_.lanes(sizes_.sum_bytes);
      int64_t width = 64;  // one vector value of many registers: each position is read once for all of them
      while (width > lanes && width > sizes_.inner) width /= 2;
      for (const Loop loop : columns_) s.vectorize(loop, static_cast<int>(width));
    }
    const bool one_row = ir::as_int(f_.axis_extent()) == 1;  // then there is one group, which is not shared
    for (const auto& [outer, groups] : shared_) {
      std::vector<Loop> loops;
      Dims extents;
      if (outer) loops.push_back(*outer), extents.push_back(sizes_.outer);
      if (!one_row) loops.push_back(groups), extents.push_back(sizes_.count);
      share_one_of(s, loops, extents, target_);
    }
  }

 private:
  // Position k, counted row-major, as an index into the middle dims.
  Index middle(Expr k) const {
    const std::vector<Expr> dims = f_.middle_dims();
    Index index(dims.size());
    for (size_t d = dims.size(); d-- > 1;) {
      const Expr divisor = ir::as_int(dims[d]) ? dims[d] : ir::max(dims[d], 1);  // proved nonzero
      index[d] = ir::floor_mod(k, divisor);
      k = ir::floor_div(k, divisor);
    }
    index[0] = k;
    return index;
  }

  // Group g is the g-th row in order of first appearance: rows[g]; its positions are order[first[g]] to
  // order[first[g + 1] - 1], in index order.
  void group() {
    rows_ = b_.alloc("rows", DType::i64, {count_}, {.min = 0, .max = f_.axis_extent() - 1, .injective = true});
    first_ = b_.alloc("first", DType::i64, {count_ + 2}, {.min = 0, .max = count_});
    order_ = b_.alloc("order", DType::i64, {count_}, {.min = 0, .max = count_ - 1});
    groups_ = b_.alloc("groups", DType::i64, {1}, {.min = 0, .max = count_});
    const Buffer saved = b_.alloc("saved", f_.bits(), {count_}),
                 group_of = b_.alloc("group_of", DType::i64, {count_}, {.min = 0, .max = count_ - 1});
    const auto lent = [&](const Expr& j) {
      return f_.joined(Index(f_.roles.outer, Expr(0)), {j}, Index(f_.roles.inner, Expr(0)));
    };
    b_.loop("save", 0, count_, [&](const Expr& i) {
      const Expr k = b_.let("k", count_ - 1 - i);
      f_.checked_index(middle(k), [&](const Expr& j) {
        b_.store(saved, {k}, ir::bitcast(f_.bits(), ir::load(f_.dx, lent(j))));
        b_.store(f_.dx, lent(j), ir::bitcast(f_.dx->dtype, ir::cast(f_.bits(), k)));
      });
    });
    b_.store(groups_, {0}, 0);
    for (int64_t i : {0, 1}) b_.store(first_, {i}, 0);
    b_.loop("count", 0, count_, [&](const Expr& k) {
      f_.checked_index(middle(k), [&](const Expr& j) {
        const Expr slot = b_.let("slot", ir::cast(DType::i64, ir::bitcast(f_.bits(), ir::load(f_.dx, lent(j)))));
        b_.if_then(slot == k, [&] {
          const Expr g = b_.let("g", ir::load(groups_, {0}));
          b_.store(group_of, {k}, g);
          b_.store(rows_, {g}, j);
          b_.store(first_, {g + 2}, 0);
          b_.store(groups_, {0}, g + 1);
        });
        const Expr g = b_.let("g", ir::load(group_of, {slot}));
        b_.store(group_of, {k}, g);
        b_.store(saved, {g}, ir::load(saved, {k}));  // the last position has saved the element itself
        b_.accumulate(first_, {g + 2}, 1);
      });
    });
    // The histogram is offset by two slots: placing advances the start of group g in first[g + 1] to that of g + 1.
    const Buffer running = b_.alloc("running", DType::i64, {1}, {}, ir::Space::registers);
    b_.store(running, {0}, 0);
    b_.loop("o", 0, count_, [&](const Expr& g) {
      b_.if_then(g < ir::load(groups_, {0}), [&] {
        b_.store(f_.dx, lent(ir::load(rows_, {g})), ir::bitcast(f_.dx->dtype, ir::load(saved, {g})));
        b_.accumulate(running, {0}, ir::load(first_, {g + 2}));
        b_.store(first_, {g + 2}, ir::load(running, {0}));
      });
    });
    b_.loop("k", 0, count_, [&](const Expr& k) {
      f_.checked_index(middle(k), [&](const Expr&) {
        const Expr g = b_.let("g", ir::load(group_of, {k})), slot = b_.let("slot", ir::load(first_, {g + 1}));
        b_.store(order_, {slot}, k);
        b_.store(first_, {g + 1}, slot + 1);
      });
    });
  }

  void sum(bool shared) {
    Loop rows = 0;
    std::vector<Loop> loops = b_.loops("p", f_.outer_dims(f_.dy), [&](const Index& p) {
      rows = b_.loop("g", 0, count_, [&](const Expr& g) {
        b_.if_then(g < ir::load(groups_, {0}), [&] {
          const Expr row = b_.let("row", ir::load(rows_, {g})), begin = b_.let("begin", ir::load(first_, {g})),
                     end = b_.let("end", ir::load(first_, {g + 1}));
          const std::vector<Loop> inner = b_.loops("q", f_.inner_dims(f_.dy), [&](const Index& q) {
            const Buffer acc = b_.alloc("acc", f_.sum, {1}, {}, ir::Space::registers);
            b_.store(acc, {0}, ir::zero({f_.sum, 1}));
            b_.loop("t", begin, end - begin, [&](const Expr& t) {
              const Expr k = b_.let("k", ir::load(order_, {t}));
              b_.accumulate(acc, {0}, ir::cast(f_.sum, ir::load(f_.dy, f_.joined(p, middle(k), q))));
            });
            f_.store_total(f_.joined(p, {row}, q), ir::load(acc, {0}));
          });
          if (!inner.empty()) columns_.push_back(inner.back());
        });
      });
    });
    if (shared) shared_.push_back({loops.empty() ? std::nullopt : std::optional(loops[0]), rows});
  }

  const GatherFrame f_;
  ir::KernelBuilder& b_;
  const ir::Target& target_;
  const GatherSizes sizes_;
  Expr count_;
  Buffer rows_, first_, order_, groups_;
  std::vector<Loop> columns_;
  struct Shared {
    std::optional<Loop> outer;
    Loop groups;
  };
  std::vector<Shared> shared_;
};

Fit fit(const Plan& plan, const ir::Target& target, bool any_shape) {
  const GatherSizes s(plan);
  if (s.roles.empty || s.roles.varying) return Fit::none;
  const Fit fit = touched_fit(plan, target, any_shape, 8);
  constexpr int64_t most_on_gpu = 32;  // positions are grouped by one thread
  return target.gpu && s.count > most_on_gpu && fit != Fit::none ? Fit::possible : fit;
}

ScheduleNest author(KernelFrame& frame, const ir::Target& target) {
  ScheduleNest own = author_nest(std::make_shared<TouchedRows>(frame, target));
  return target.gpu ? ScheduleNest() : own;
}

}  // namespace

Strategy gather_touched_rows() { return {.name = "touched_rows", .fit = fit, .author = author}; }

}  // namespace gradloom
