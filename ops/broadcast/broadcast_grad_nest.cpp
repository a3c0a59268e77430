// The nest of BroadcastGrad: strategies "direct" and "split" are schedules of it.
#include "ops/broadcast/broadcast_grad.h"
#include "ops/patterns/integer_math.h"

namespace gradloom {
namespace {

using ir::Expr;
using Index = std::vector<Expr>;

class ReduceNest {
 public:
  explicit ReduceNest(KernelFrame& frame)
      : roles_(frame.plan()),
        b_(frame.builder),
        y_(frame.view(0, "dY")),
        x_(frame.view(1, "dX", roles_.accumulate)),
        sum_(accumulator_of(x_->dtype)) {}

  SumNest write() {
    const bool columns = roles_.columns() && !roles_.reduced.empty();
    Index extents;
    const size_t loops = roles_.kept.size() - (columns ? 1 : 0);
    for (size_t i = 0; i < loops; ++i) extents.push_back(y_->dims[roles_.kept[i]]);
    at_y_.resize(roles_.rank());
    nest_.kept = b_.loops("p", extents, [&](const Index& p) {
      at_x_ = p;
      for (size_t i = 0; i < loops; ++i) at_y_[roles_.kept[i]] = p[i];
      if (!columns) return element();
      nest_.columns = b_.loop("column", 0, y_->dims.back(), [&](Expr c) {
        at_y_.back() = c;
        at_x_.push_back(c);
        element();
        at_x_.pop_back();
      });
    });
    return std::move(nest_);
  }

 private:
  // One element of dX.
  void element() {
    if (roles_.kept.empty()) at_x_ = {0};
    // No reduction: a plain copy, which preserves NaN payloads.
    if (roles_.reduced.empty()) {
      const Expr y = ir::load(y_, at_y_);
      return roles_.accumulate ? store(ir::cast(sum_, y)) : b_.store(x_, at_x_, y);
    }
    const ir::Buffer acc = b_.alloc("acc", sum_, {1});
    std::vector<ir::KernelBuilder::Bounds> bounds;
    for (const int d : roles_.reduced) bounds.push_back({"r" + std::to_string(d), 0, y_->dims[d]});
    const auto term = [&](const Index& r) {
      Index at = at_y_;
      for (size_t j = 0; j < r.size(); ++j) at[roles_.reduced[j]] = r[j];
      return ir::cast(sum_, ir::load(y_, at));
    };
    nest_.reduction = b_.reduce(acc, {0}, ir::AccumulateOp::add, bounds, term, ir::SumOrder::in_tree(roles_.block()));
    store(ir::load(acc, {0}));
  }

  void store(Expr total) {
    if (roles_.accumulate) total = ir::cast(sum_, ir::load(x_, at_x_)) + total;
    b_.store(x_, at_x_, ir::cast(x_->dtype, total));
  }

  const ReduceRoles roles_;
  ir::KernelBuilder& b_;
  const ir::Buffer y_, x_;
  const DType sum_;
  Index at_x_, at_y_;  // the current indices; kept dims are set first, reduced ones by the reduction
  SumNest nest_;
};

// Columns that share a row of accumulators: as many as stay in the L1 cache along with the data read, fewer where there
// would be too few tasks for all threads. Rows are read in long contiguous pieces, as only those reach full memory
// bandwidth. On a GPU, one column per thread: neighbouring columns go to neighbouring threads, sums are in registers.
int64_t column_tile(const KernelFrame& frame, const ir::Target& target) {
  constexpr int64_t any = 256;
  if (target.gpu) return 1;
  const View& x = frame.plan().views[1];
  const int64_t most = 4096 / size_of(accumulator_of(x.dtype));
  if (frame.any_shape()) return any;
  const int64_t columns = std::max<int64_t>(x.dims.back(), 1),
                rows = std::max<int64_t>(element_count(x.dims) / columns, 1), line = ir::line_bytes / size_of(x.dtype);
  const int64_t pieces = ceil_div(target.threads, rows), piece = round_up(ceil_div(columns, pieces), line);
  return std::clamp<int64_t>(piece, 1, std::min(columns, most));
}

}  // namespace

ScheduleNest author_broadcast_direct(KernelFrame& frame, const ir::Target& target) {
  SumNest nest = ReduceNest(frame).write();
  if (nest.columns) nest.tile = column_tile(frame, target);
  return [nest, &plan = frame.plan(), &target](ir::Schedule& s) { schedule_broadcast_direct(s, nest, plan, target); };
}

ScheduleNest author_broadcast_split(KernelFrame& frame, const ir::Target& target) {
  return [nest = ReduceNest(frame).write(), &plan = frame.plan(), &target](ir::Schedule& s) {
    schedule_broadcast_split(s, nest, plan, target);
  };
}

}  // namespace gradloom
