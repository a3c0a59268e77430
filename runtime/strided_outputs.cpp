#include "runtime/strided_outputs.h"

#include "gradloom/schedule_common.h"
#include "ir/bits_dtype.h"
#include "runtime/call.h"
#include "support/lasting.h"

namespace gradloom {
namespace {

struct Axis {
  int64_t dim, stride;
};
using Axes = InlineVector<Axis, max_rank>;

// The axes of an argument in row-major order, those of size 1 left out and those in line merged.
Axes axes_of(const Argument& a) {
  Axes axes;
  for (int d = 0; d < a.rank; ++d) {
    if (a.dims[d] == 1) continue;
    if (!axes.empty() && axes.back().stride == a.dims[d] * a.strides[d])
      axes.back() = {axes.back().dim * a.dims[d], a.strides[d]};
    else
      axes.push_back({a.dims[d], a.strides[d]});
  }
  return axes;
}

// The strides with which a dense view's dims lie in memory of these axes; nothing when an index of the view has no one
// stride there.
std::optional<Dims> strides_in(const Dims& dims, Axes axes) {
  Dims strides;
  strides.resize(dims.size());
  for (int d = dims.size(); d-- > 0;) {
    strides[d] = 1;
    if (dims[d] == 1) continue;
    if (axes.empty() || axes.back().dim % dims[d] != 0) return {};
    strides[d] = axes.back().stride;
    axes.back() = {axes.back().dim / dims[d], axes.back().stride * dims[d]};
    if (axes.back().dim == 1) axes.resize(axes.size() - 1);
  }
  return axes.empty() ? std::optional(strides) : std::nullopt;
}

// Copies elements, whatever they mean, by their size.
class StridedCopy final : public Op {
 public:
  StridedCopy()
      : Op({.name = "strided_copy",
            .doc = "x, in memory with other strides",
            .inputs = {{.name = "x", .dtypes = {DType::u8, DType::u16, DType::u32, DType::u64}, .type = "T"}},
            .outputs = {{.name = "y", .dtypes = {DType::u8, DType::u16, DType::u32, DType::u64}, .type = "T"}}},
           {{.name = "direct", .author = author}}) {}

 private:
  Plan plan(const Request& request) const override {
    const Operand& x = request.input(0);
    Plan plan;
    plan.outputs.push_back({.dtype = x.dtype, .dims = x.dims});
    plan.views.push_back({.dtype = x.dtype, .dims = x.dims, .strides = x.strides});
    plan.views.push_back({.output = true, .dtype = x.dtype, .dims = x.dims, .strides = dense_strides(x.dims)});
    plan.bytes_read = plan.bytes_written = element_count(x.dims) * size_of(x.dtype);
    return plan;
  }
  static ScheduleNest author(KernelFrame& frame, const ir::Target& target) {
    const ir::Buffer x = frame.view(0, "x"), y = frame.view(1, "y");
    ir::KernelBuilder& b = frame.builder;
    const std::vector<ir::Loop> loops =
        b.loops("i", y->dims, [&](const std::vector<ir::Expr>& i) { b.store(y, i, ir::load(x, i)); });
    if (loops.empty() || target.gpu) return {};
    return [loops, &plan = frame.plan(), &target](ir::Schedule& s) {
      const View& view = plan.views[1];
      if (worth_threads(2 * plan.bytes_written, target) && loops.size() > 1) s.parallel(loops[0]);
      vectorize_elements(s, loops.back(), size_of(view.dtype), 4, target);
    };
  }
};

const Op& strided_copy_op() {
  static constinit Lasting<const StridedCopy> op;
  return *op;
}

}  // namespace

uint32_t write_in_place(Plan& plan, Arguments outputs) {
  uint32_t in_place = 0;
  for (size_t o = 0; o < outputs.size(); ++o) {
    if (!outputs[o].present || !is_strided(outputs[o])) continue;
    const Axes axes = axes_of(outputs[o]);
    InlineVector<Dims, max_views> strides;
    bool whole = true;  // every view is of the whole output
    for (const View& view : plan.views) {
      if (!view.output || view.index != static_cast<int>(o)) continue;
      const std::optional<Dims> found =
          is_dense(view.dims, view.strides) ? strides_in(view.dims, axes) : std::optional<Dims>();
      whole = whole && found;
      if (whole) strides.push_back(*found);
    }
    if (!whole) continue;
    int next = 0;
    for (View& view : plan.views)
      if (view.output && view.index == static_cast<int>(o)) view.strides = strides[next++];
    in_place |= 1u << o;
  }
  return in_place;
}

DenseOutputs::DenseOutputs(Core& core, int device, Arguments outputs, uint32_t in_place, bool accumulate,
                           const LaunchOptions& launch)
    : core_(core), device_(device), launch_(launch) {
  list_.append(outputs);
  for (size_t o = 0; o < outputs.size(); ++o) {
    if (!is_copied(outputs[o], in_place >> o & 1)) continue;
    memory_.push_back(core.allocate(device, outputs[o].dtype, dims_of(outputs[o]), launch));
    Argument& dense = list_[static_cast<int>(o)];
    dense.data = memory_.back().data();
    dense.strides = nullptr;
    dense.high = -1;
    back_.push_back(copy_of(dense, outputs[o]));
    if (accumulate) run(copy_of(outputs[o], dense));
  }
}

DenseOutputs::Copy DenseOutputs::copy_of(const Argument& from, const Argument& to) const {
  const bool gathers = from.strides != nullptr;
  const DType bits = ir::bits_dtype(from.dtype);
  Operand x{.present = true, .dtype = bits};
  for (const Axis& axis : axes_of(gathers ? from : to)) {
    x.dims.push_back(axis.dim);
    x.strides.push_back(axis.stride);
  }
  const Dims strides = x.strides;
  if (!gathers) x.strides = dense_strides(x.dims);
  const Attributes none;
  const Op& op = strided_copy_op();
  const Request request{.inputs = {&x, 1}, .attributes = none};
  Copy copy{.from = from, .to = to, .plan = op.check(request)};
  uint32_t in_place = 0;
  if (!gathers) {
    copy.plan.views[1].strides = strides;
    in_place = 1;
  }
  const RunOptions options{.any_shape = true};
  copy.kernel = core_.kernel_for({op, copy.plan, op.strategies()[0], options, 1, any_outputs, &request, in_place});
  return copy;
}

void DenseOutputs::run(const Copy& copy) const {
  void* const views[] = {copy.from.data, copy.to.data};
  launch_plan(core_, *copy.kernel, copy.plan, views, launch_);
}

void DenseOutputs::copy_back() const {
  for (const Copy& copy : back_) run(copy);
}

}  // namespace gradloom
