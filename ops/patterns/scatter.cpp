#include "ops/patterns/scatter.h"

#include <algorithm>

#include "gradloom/schedule_common.h"
#include "ir/bits_dtype.h"

namespace gradloom {

using ir::Expr;
using ir::Loop;

ScatterSums::ScatterSums(ir::KernelBuilder& b, ir::Buffer dx, std::vector<int> order, bool accumulate, bool scaled)
    : b_(b), dx_(std::move(dx)), order_(std::move(order)), accumulate_(accumulate) {
  const DType sum = accumulator_of(dx_->dtype);
  const bool in_place = sum == dx_->dtype && !accumulate && !scaled;
  sums_ = in_place ? dx_ : b.alloc("sums", sum, dx_->dims);
}

std::vector<Loop> ScatterSums::over_all(const std::string& name, const std::function<void(const Index&)>& body) const {
  std::vector<Expr> extents;
  for (const int d : order_) extents.push_back(dx_->dims[d]);
  return b_.loops(name, extents, [&](const Index& at) {
    Index index(at.size());
    for (size_t i = 0; i < at.size(); ++i) index[order_[i]] = at[i];
    body(index);
  });
}

std::vector<Loop> ScatterSums::clear() const {
  return over_all("z", [&](const Index& i) { b_.store(sums_, i, ir::zero({dtype(), 1})); });
}

std::vector<Loop> ScatterSums::store(const std::function<Expr(const Index&, Expr)>& scale) const {
  if (sums_.same_as(dx_)) return {};
  return over_all("s", [&](const Index& i) {
    Expr total = ir::load(sums_, i);
    if (scale) total = scale(i, total);
    b_.store(dx_, i, accumulate_ ? added_to(ir::load(dx_, i), b_.let("total", total)) : ir::cast(dx_->dtype, total));
  });
}

bool has_no_elements(const Plan& plan) {
  return std::any_of(plan.views.begin(), plan.views.end(), [](const View& v) { return element_count(v.dims) == 0; });
}

Expr added_to(const Expr& element, const Expr& total) {
  const DType dtype = element.dtype();
  const DType bits = ir::bits_dtype(dtype);
  const Expr both = ir::cast(dtype, ir::cast(total.dtype(), element) + total);
  return ir::bitcast(dtype,
                     ir::select(total == ir::zero(total.type()), ir::bitcast(bits, element), ir::bitcast(bits, both)));
}

namespace {

// The first loop with enough iterations for all threads, else the last one.
Loop shared(const ir::Schedule& s, const std::vector<Loop>& loops, const ir::Target& target) {
  for (const Loop loop : loops)
    if (ir::as_int(s.get(loop).extent).value_or(0) >= wanted_tasks(target)) return loop;
  return loops.back();
}

}  // namespace

void schedule_scatter_rows(ir::Schedule& s, const ScatterLoops& loops, const ScatterSums& sums, int64_t columns,
                           int64_t traffic, const ir::Target& target) {
  Loop updates = loops.updates[0];
  for (size_t i = 1; i < loops.updates.size(); ++i) updates = s.fuse(updates, loops.updates[i]);
  const ir::Schedule::Groups groups = s.group(updates, sums.sums());

  // A dim of dX after the other, what clears it, what sums and what stores become one loop, down to one element.
  std::vector<Loop> sum = loops.outer;
  sum.insert(sum.end(), groups.rows.begin(), groups.rows.end());
  const size_t rows = sum.size();
  sum.insert(sum.end(), loops.columns.begin(), loops.columns.end());
  for (size_t d = 0; d < sum.size(); ++d) {
    if (d >= rows) s.reorder(groups.group, sum[d]);
    s.join(loops.clear[d], sum[d]);
    if (!loops.store.empty()) s.join(loops.clear[d], loops.store[d]);
  }
  std::vector<Expr> element(sum.size());
  for (size_t d = 0; d < sum.size(); ++d) element[sums.order()[d]] = ir::var(s.get(loops.clear[d]).var);
  s.stage(loops.clear.back(), sums.sums(), element, std::vector<Expr>(element.size(), 1));

  s.vectorize(groups.clear, target.lanes(4), 4);
  if (sum.size() > rows) vectorize_row(s, loops.clear.back(), columns, sums.dtype(), target);
  if (worth_threads(traffic, target)) s.parallel(shared(s, {loops.clear.begin(), loops.clear.begin() + rows}, target));
  const ir::Buffer dx = s.kernel().buffers.back();
  if (target.streaming_stores && traffic > 4 * target.l2_bytes && whole_lines(columns, dx->dtype)) s.streaming(dx);
}

void vectorize_row(ir::Schedule& s, Loop loop, int64_t width, DType dtype, const ir::Target& target) {
  const int lanes = target.lanes(size_of(dtype));
  int64_t vector = 64;
  while (vector > lanes && vector > width) vector /= 2;
  s.vectorize(loop, static_cast<int>(vector));
}

}  // namespace gradloom
