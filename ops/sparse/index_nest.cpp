// The nests of IndexGrad.
#include <optional>

#include "gradloom/schedule_common.h"
#include "ops/patterns/scatter.h"
#include "ops/patterns/sorted_groups.h"
#include "ops/sparse/index_grad.h"

namespace gradloom {
namespace {

using ir::Buffer;
using ir::Expr;
using ir::Loop;
using Index = std::vector<Expr>;

class IndexNest {
 public:
  explicit IndexNest(KernelFrame& frame)
      : b_(frame.builder), plan_(frame.plan()), key_(key_of<IndexKey>(frame.plan())) {
    for (int i = 0; i < key_.indices; ++i) indices_.push_back(frame.view(i, "indices" + std::to_string(i)));
    dy_ = frame.view(key_.indices, "dY");
    dx_ = frame.view(key_.indices + 1, "dX", key_.accumulate);
    for (const IndexKey::Role role : {IndexKey::outer, IndexKey::indexed, IndexKey::column})
      for (int d = 0; d < key_.roles.size(); ++d)
        if (key_.roles[d] == role) order_.push_back(d), ++counts_[role];
    for (int i = 0; i < key_.indices; ++i)
      sizes_.push_back(flattened() ? frame.param(i, "s" + std::to_string(i), 0, ir::max_elements)
                                   : extents(IndexKey::indexed)[i]);
  }

  void write_scatter() {
    sums_.emplace(b_, dx_, order_, key_.accumulate);
    loops_.clear = sums_->clear();
    loops_.outer = b_.loops("p", extents(IndexKey::outer), [&](const Index& p) {
      loops_.updates = b_.loops("k", middle(), [&](const Index& k) {
        located(k, [&](const Index& at) {
          loops_.columns = b_.loops("q", extents(IndexKey::column), [&](const Index& q) {
            sums_->add(in_dx(p, at, q), ir::cast(sums_->dtype(), ir::load(dy_, joined({p, k, q}))));
          });
        });
      });
    });
    loops_.store = sums_->store();
  }
  void schedule_scatter(ir::Schedule& s, const ir::Target& target) const {
    schedule_scatter_rows(s, loops_, *sums_, plan_.views[plan_.views.size() - 1].dims.back(), traffic(), target);
  }

  void write_touched() {
    const DType sum = accumulator_of(dx_->dtype);
    Expr count = 1;
    for (const Expr& dim : middle()) count = count * dim;
    const SortedGroups sorted = sort_by_key(b_, count, extents(IndexKey::indexed)[0], [&](const PlaceKey& place) {
      b_.loops("k", middle(), [&](const Index& k) { located(k, [&](const Index& at) { place(position(k), at[0]); }); });
    });
    const Index outer = extents(IndexKey::outer);
    const auto split = [&](const Index& q) {
      return std::pair(Index(q.begin(), q.begin() + outer.size()), Index(q.begin() + outer.size(), q.end()));
    };
    groups_ = sum_groups(
        b_, sorted, sum, joined({outer, extents(IndexKey::column)}),
        [&](const Expr& at, const Index& q) {
          const auto [p, columns] = split(q);
          return ir::cast(sum, ir::load(dy_, joined({p, unflattened(at, middle()), columns})));
        },
        [&](const Expr& group, const Index& q, const Expr& total) {
          const auto [p, columns] = split(q);
          const Index at = in_dx(p, {b_.let("row", ir::load(sorted.keys, {group}))}, columns);
          b_.store(dx_, at, added_to(ir::load(dx_, at), total));
        });
  }
  void schedule_touched(ir::Schedule& s, const ir::Target& target) const {
    const View& dx = plan_.views[plan_.views.size() - 1];
    if (counts_[IndexKey::column] > 0)
      vectorize_row(s, groups_.back(), dx.dims.back(), accumulator_of(dx.dtype), target);
    const bool one_group = ir::as_int(extents(IndexKey::indexed)[0]) == 1;
    if (worth_threads(traffic(), target) && !one_group) s.parallel(groups_[0]);
  }

 private:
  // One dim of dX's view stands for several indexed ones.
  bool flattened() const { return key_.merged && key_.indices > 1; }
  int64_t traffic() const { return plan_.bytes_read + plan_.bytes_written; }
  Index middle() const { return {indices_[0]->dims.begin(), indices_[0]->dims.end()}; }
  Index extents(IndexKey::Role role) const {
    Index dims;
    for (const int d : order_)
      if (key_.roles[d] == role) dims.push_back(dx_->dims[d]);
    return dims;
  }
  static Index joined(const std::vector<Index>& parts) {
    Index all;
    for (const Index& part : parts) all.insert(all.end(), part.begin(), part.end());
    return all;
  }
  Index in_dx(const Index& p, const Index& at, const Index& q) const {
    const Index ordered = joined({p, at, q});
    Index index(ordered.size());
    for (size_t i = 0; i < ordered.size(); ++i) index[order_[i]] = ordered[i];
    return index;
  }
  Expr position(const Index& k) const {
    Expr flat = k[0];
    for (size_t d = 1; d < k.size(); ++d) flat = flat * indices_[0]->dims[d] + k[d];
    return flat;
  }

  // Loads the indices at k, checks them, and runs body(what they are along dX's indexed dims).
  void located(const Index& k, const std::function<void(const Index&)>& body) {
    Index at;
    Expr inside, key;
    for (int i = 0; i < key_.indices; ++i) {
      const Expr raw = b_.let("raw", ir::cast(DType::i64, ir::load(indices_[i], k))),
                 j = b_.let("j", ir::select(raw < 0, raw + sizes_[i], raw));
      const Expr allowed = (j >= 0) & (j < sizes_[i]);
      inside = inside ? inside & allowed : allowed;
      key = key ? key * sizes_[i] + j : j;
      at.push_back(j);
    }
    if (flattened()) {  // whose own range is what the schedule can see
      key = b_.let("key", key);
      inside = inside & (key >= 0) & (key < extents(IndexKey::indexed)[0]);
      at = {key};
    }
    b_.check(inside, position(k), "indices", [&] { body(at); });
  }

  ir::KernelBuilder& b_;
  const Plan& plan_;
  const IndexKey key_;
  std::vector<Buffer> indices_;
  Buffer dy_, dx_;
  std::vector<Expr> sizes_;
  std::vector<int> order_;
  int counts_[3] = {0, 0, 0};
  std::optional<ScatterSums> sums_;
  ScatterLoops loops_;
  std::vector<Loop> groups_;
};

ScheduleNest author_touched(KernelFrame& frame, const ir::Target& target) {
  const auto nest = std::make_shared<IndexNest>(frame);
  nest->write_touched();
  return [nest, &target](ir::Schedule& s) { nest->schedule_touched(s, target); };
}

ScheduleNest author_grouped(KernelFrame& frame, const ir::Target& target) {
  const auto nest = std::make_shared<IndexNest>(frame);
  nest->write_scatter();
  return [nest, &target](ir::Schedule& s) { nest->schedule_scatter(s, target); };
}

ScheduleNest author_direct(KernelFrame& frame, const ir::Target&) {
  IndexNest(frame).write_scatter();
  return {};
}

// What the fits look at.
struct Sizes {
  explicit Sizes(const Plan& plan) : key(key_of<IndexKey>(plan)) {
    const View& dx = plan.views[plan.views.size() - 1];
    const int sum_bytes = size_of(accumulator_of(dx.dtype));
    for (const int64_t dim : plan.views[0].dims) count *= dim;
    for (int d = 0; d < dx.dims.size(); ++d) (key.roles[d] == IndexKey::indexed ? destinations : slice) *= dx.dims[d];
    rows = key.roles.back() == IndexKey::column;
    if (rows) row_bytes = dx.dims.back() * sum_bytes;
    bytes = destinations * slice * sum_bytes;
  }
  IndexKey key;
  int64_t count = 1, destinations = 1, slice = 1;  // positions; elements that they choose from; elements of each
  int64_t row_bytes = 0, bytes = 0;                // of the sums: contiguous columns, all
  bool rows = false;                               // dX's last dim is a column
};

Fit fit_touched(const Plan& plan, const ir::Target& target, bool) {
  const Sizes s(plan);
  if (target.gpu || !s.key.accumulate || !s.key.merged || has_no_elements(plan)) return Fit::none;
  // Sorting a single element costs as much as passing so many of dX.
  const int64_t passed = s.bytes <= target.l2_bytes ? 32 : 8;
  return s.slice >= 8 || s.count < s.destinations / passed ? Fit::preferred : Fit::possible;
}

Fit fit_grouped(const Plan& plan, const ir::Target& target, bool any_shape) {
  const Sizes s(plan);
  if (target.gpu || !s.rows || has_no_elements(plan)) return Fit::none;
  if (any_shape && s.key.middle > 1) return Fit::none;  // positions are divided by dims that may be 0
  const bool pays = sorting_pays(s.count, s.destinations, s.row_bytes);
  return pays && s.bytes > target.l2_bytes ? Fit::preferred : Fit::possible;
}

}  // namespace

Strategy index_touched() { return {.name = "touched", .fit = fit_touched, .author = author_touched}; }
Strategy index_grouped() { return {.name = "grouped", .fit = fit_grouped, .author = author_grouped}; }
Strategy index_direct() { return {.name = "direct", .author = author_direct}; }

}  // namespace gradloom
