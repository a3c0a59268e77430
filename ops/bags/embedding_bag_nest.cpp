// The nest of EmbeddingBagGrad: bags are segments of indices.
#include <optional>

#include "gradloom/schedule_common.h"
#include "ops/bags/embedding_bag_grad.h"
#include "ops/patterns/scatter.h"
#include "ops/patterns/sorted_groups.h"

namespace gradloom {
namespace {

using ir::Buffer;
using ir::Expr;
using ir::Loop;

class BagNest {
 public:
  explicit BagNest(KernelFrame& frame)
      : b_(frame.builder),
        key_(key_of<BagKey>(frame.plan())),
        plan_(frame.plan()),
        indices_(frame.view(0, "indices")),
        offsets_(frame.view(1, "offsets")),
        dy_(frame.view(2, "dY")) {
    int v = 3;
    if (key_.weights) weights_ = frame.view(v++, "per_sample_weights");
    if (key_.mode == BagKey::max) chosen_ = frame.view(v++, "max_indices");
    dx_ = frame.view(v, "dX", key_.accumulate);
    if (key_.padding) padding_ = frame.param(0, "padding", 0, rows() - 1);
  }

  void write() {
    write_starts();
    if (key_.mode != BagKey::sum) write_shares();
    if (key_.by_frequency) write_frequencies();
    sums_.emplace(b_, dx_, std::vector<int>{0, 1}, key_.accumulate, key_.by_frequency);
    loops_.clear = sums_->clear();
    key_.mode == BagKey::max ? add_chosen() : add_rows();
    if (!key_.by_frequency)
      loops_.store = sums_->store();
    else
      loops_.store = sums_->store([&](const ScatterSums::Index& i, const Expr& total) {
        return total / ir::cast(sums_->dtype(), ir::max(ir::load(frequencies_, {i[0]}), 1));
      });
  }

  void schedule(ir::Schedule& s, const ir::Target& target) const {
    schedule_scatter_rows(s, loops_, *sums_, view().dims[1], traffic(), target);
  }

  // Positions are sorted by row; then what a row gets is added to it once.
  void write_touched() {
    write_starts();
    if (key_.mode == BagKey::mean) write_shares();
    const Buffer bag_of = b_.alloc("bag_of", DType::i64, {count()}, {.min = 0, .max = bags() - 1});
    b_.loop("b", 0, bags(), [&](const Expr& bag) {
      b_.loop("p", begin(bag), end(bag) - begin(bag), [&](const Expr& p) { b_.store(bag_of, {p}, bag); });
    });
    const SortedGroups sorted = sort_by_key(b_, count(), rows(), [&](const PlaceKey& place) {
      b_.loop("k", 0, count(), [&](const Expr& p) { indexed(p, [&](const Expr& row) { place(p, row); }); });
    });
    const DType sum = accumulator_of(dx_->dtype);
    groups_ = sum_groups(
        b_, sorted, sum, {dx_->dims[1]},
        [&](const Expr& p, const ScatterSums::Index& q) {
          const Expr bag = b_.let("bag", ir::load(bag_of, {p}));
          return added_value(bag, q[0], factor(p, bag));
        },
        [&](const Expr& group, const ScatterSums::Index& q, const Expr& total) {
          const ScatterSums::Index at{b_.let("row", ir::load(sorted.keys, {group})), q[0]};
          const Expr times = ir::cast(sum, sorted.end(group) - sorted.begin(group));
          b_.store(dx_, at, added_to(ir::load(dx_, at), b_.let("all", key_.by_frequency ? total / times : total)));
        });
  }
  void schedule_touched(ir::Schedule& s, const ir::Target& target) const {
    vectorize_row(s, groups_.back(), view().dims[1], accumulator_of(view().dtype), target);
    if (worth_threads(traffic(), target) && ir::as_int(rows()) != 1) s.parallel(groups_[0]);
  }

 private:
  const View& view() const { return plan_.views[plan_.views.size() - 1]; }  // dX's
  int64_t traffic() const { return plan_.bytes_read + plan_.bytes_written; }
  Expr rows() const { return dx_->dims[0]; }
  Expr count() const { return indices_->dims[0]; }
  Expr bags() const { return dy_->dims[0]; }
  Expr begin(const Expr& bag) const { return ir::load(starts_, {bag}); }
  Expr end(const Expr& bag) const { return ir::load(starts_, {bag + 1}); }

  // The offsets, checked. A bad one counts as the one before it, so that what follows holds for any.
  void write_starts() {
    starts_ = b_.alloc("starts", DType::i64, {bags() + 1}, {.min = 0, .max = count(), .nondecreasing = true});
    const Buffer last = b_.alloc("last", DType::i64, {1}, {.min = 0, .max = count()}, ir::Space::registers);
    b_.store(last, {0}, 0);
    b_.loop("o", 0, bags(), [&](const Expr& bag) {
      const Expr offset = b_.let("offset", ir::cast(DType::i64, ir::load(offsets_, {bag}))),
                 before = b_.let("before", ir::load(last, {0}));
      const Expr most = ir::select(bag == 0, 0, count());
      b_.check((offset >= before) & (offset <= most), bag, "offsets", [&] { b_.store(last, {0}, offset); });
      b_.store(starts_, {bag}, ir::load(last, {0}));
    });
    b_.store(starts_, {bags()}, count());
    if (key_.last_offset)
      b_.check(ir::cast(DType::i64, ir::load(offsets_, {bags()})) == count(), bags(), "offsets", [] {});
  }

  // body(row) for the index at a position, unless it is that of padding.
  void indexed(const Expr& p, const std::function<void(const Expr&)>& body) {
    const Expr raw = b_.let("raw", ir::cast(DType::i64, ir::load(indices_, {p}))),
               row = b_.let("row", ir::select(raw < 0, raw + rows(), raw));
    b_.check((row >= 0) & (row < rows()), offsets_->dims[0] + p, "indices",
             [&] { b_.guarded(padding_ ? row != padding_ : Expr(), [&] { body(row); }); });
  }

  // The share of each index of a bag, 1 over how many it has, those of padding left out; 0 of a bag that has none.
  void write_shares() {
    const DType sum = accumulator_of(dx_->dtype);
    shares_ = b_.alloc("shares", sum, {bags()});
    b_.loop("n", 0, bags(), [&](const Expr& bag) {
      const Buffer count = b_.alloc("count", DType::i64, {1}, {}, ir::Space::registers);
      b_.store(count, {0}, 0);
      b_.loop("m", begin(bag), end(bag) - begin(bag),
              [&](const Expr& p) { indexed(p, [&](const Expr&) { b_.accumulate(count, {0}, 1); }); });
      const Expr n = b_.let("n", ir::load(count, {0})), share = ir::constant(sum, 1) / ir::cast(sum, ir::max(n, 1));
      b_.store(shares_, {bag}, ir::select(n > 0, share, ir::zero({sum, 1})));
    });
  }

  // How often each row is named.
  void write_frequencies() {
    frequencies_ = b_.alloc("frequencies", DType::i64, {rows()});
    b_.loop("f", 0, rows(), [&](const Expr& i) { b_.store(frequencies_, {i}, 0); });
    b_.loop("h", 0, count(),
            [&](const Expr& p) { indexed(p, [&](const Expr& row) { b_.accumulate(frequencies_, {row}, 1); }); });
  }

  // What an index adds to a column of its row: dY, multiplied by a factor where the mode has one.
  Expr factor(const Expr& p, const Expr& bag) {
    if (key_.weights) return b_.let("weight", ir::cast(accumulator_of(dx_->dtype), ir::load(weights_, {p})));
    return key_.mode == BagKey::mean ? b_.let("share", ir::load(shares_, {bag})) : Expr();
  }
  Expr added_value(const Expr& bag, const Expr& column, const Expr& factor) const {
    const Expr value = ir::cast(accumulator_of(dx_->dtype), ir::load(dy_, {bag, column}));
    return factor ? value * factor : value;
  }

  void add_rows() {
    loops_.updates.resize(2);
    loops_.updates[0] = b_.loop("b", 0, bags(), [&](const Expr& bag) {
      loops_.updates[1] = b_.loop("p", begin(bag), end(bag) - begin(bag), [&](const Expr& p) {
        indexed(p, [&](const Expr& row) {
          const Expr by = factor(p, bag);
          loops_.columns = {b_.loop("q", 0, dx_->dims[1], [&](const Expr& q) {
            sums_->add({row, q}, added_value(bag, q, by));
          })};
        });
      });
    });
  }

  void add_chosen() {
    b_.loop("b", 0, bags(), [&](const Expr& bag) {
      b_.if_then(ir::load(shares_, {bag}) > 0, [&] {
        b_.loop("q", 0, dx_->dims[1], [&](const Expr& q) {
          const Expr raw = b_.let("raw", ir::cast(DType::i64, ir::load(chosen_, {bag, q}))),
                     row = b_.let("row", ir::select(raw < 0, raw + rows(), raw));
          const Expr position = offsets_->dims[0] + count() + bag * dx_->dims[1] + q;
          b_.check((row >= 0) & (row < rows()), position, "max_indices", [&] {
            sums_->add({row, q}, ir::cast(sums_->dtype(), ir::load(dy_, {bag, q})));
          });
        });
      });
    });
  }

  ir::KernelBuilder& b_;
  const BagKey key_;
  const Plan& plan_;
  const Buffer indices_, offsets_, dy_;
  Buffer weights_, chosen_, dx_, starts_, shares_, frequencies_;
  Expr padding_;
  std::optional<ScatterSums> sums_;
  ScatterLoops loops_;
  std::vector<Loop> groups_;
};

ScheduleNest author_grouped(KernelFrame& frame, const ir::Target& target) {
  const auto nest = std::make_shared<BagNest>(frame);
  nest->write();
  return [nest, &target](ir::Schedule& s) { nest->schedule(s, target); };
}

ScheduleNest author_touched(KernelFrame& frame, const ir::Target& target) {
  const auto nest = std::make_shared<BagNest>(frame);
  nest->write_touched();
  return [nest, &target](ir::Schedule& s) { nest->schedule_touched(s, target); };
}

ScheduleNest author_direct(KernelFrame& frame, const ir::Target&) {
  BagNest(frame).write();
  return {};
}

Fit fit_touched(const Plan& plan, const ir::Target& target, bool) {
  const BagKey key = key_of<BagKey>(plan);
  if (target.gpu || !key.accumulate || key.mode == BagKey::max || has_no_elements(plan)) return Fit::none;
  const int64_t count = plan.views[0].dims[0], rows = plan.views[plan.views.size() - 1].dims[0];
  return count < rows ? Fit::preferred : Fit::possible;
}

Fit fit_grouped(const Plan& plan, const ir::Target& target, bool) {
  if (target.gpu || key_of<BagKey>(plan).mode == BagKey::max) return Fit::none;
  if (has_no_elements(plan)) return Fit::none;
  const View& dx = plan.views[plan.views.size() - 1];
  const int64_t row = dx.dims[1] * size_of(accumulator_of(dx.dtype));
  const bool pays = sorting_pays(plan.views[0].dims[0], dx.dims[0], row);
  return pays && dx.dims[0] * row > target.l2_bytes ? Fit::preferred : Fit::possible;
}

}  // namespace

Strategy embedding_bag_touched() { return {.name = "touched", .fit = fit_touched, .author = author_touched}; }
Strategy embedding_bag_grouped() { return {.name = "grouped", .fit = fit_grouped, .author = author_grouped}; }
Strategy embedding_bag_direct() { return {.name = "direct", .author = author_direct}; }

}  // namespace gradloom
