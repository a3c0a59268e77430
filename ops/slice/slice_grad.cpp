// SliceGrad (ORT, com.microsoft): the gradient of ONNX Slice. What its arguments mean and which are refused.
#include "ops/slice/slice_grad.h"

#include <fmt/format.h>

#include <limits>

#include "ops/registry.h"

namespace gradloom {
namespace {

constexpr int in_dy = 0, in_shape = 1, in_starts = 2, in_ends = 3, in_axes = 4, in_steps = 5;

OpSchema make_schema() {
  std::vector<DType> any;
  for (int i = 0; i < dtype_count; ++i) any.push_back(static_cast<DType>(i));
  const std::vector<DType> index{DType::i32, DType::i64};
  OpSchema s;
  s.name = "SliceGrad";
  s.doc = "The gradient of Slice: zeros of `shape` with dY at the sliced positions.";
  s.inputs = {{.name = "dY", .dtypes = any, .doc = "the gradient of Slice's output; its shape is the slice's"},
              {.name = "shape", .dtypes = {DType::i64}, .shape_like = true, .doc = "the shape of dX"},
              {.name = "starts",
               .dtypes = index,
               .shape_like = true,
               .doc = "rank 1: the first index of each sliced axis; negative counts from the end"},
              {.name = "ends",
               .dtypes = index,
               .shape_like = true,
               .doc = "rank 1: one beyond the last; INT32_MAX and INT64_MAX mean to the end"},
              {.name = "axes",
               .optional = true,
               .dtypes = index,
               .shape_like = true,
               .doc = "rank 1: the sliced axes; by default the first ones"},
              {.name = "steps",
               .optional = true,
               .dtypes = index,
               .shape_like = true,
               .doc = "rank 1: nonzero steps, negative ones too; by default 1"}};
  s.outputs = {{.name = "dX", .dtypes = any, .doc = "the gradient of Slice's data"}};
  return s;
}

[[noreturn]] void bad(const OpSchema& schema, const std::string& what) {
  refuse(schema, ErrorCode::invalid_argument, what);
}

// A window's first index and extent along a dim of d, as ORT clamps starts and ends.
SliceDim window_of(int64_t d, int64_t start, int64_t end, int64_t step) {
  SliceDim w{.dx = d, .dy = 0, .step = step};
  if (d == 0) return w;
  int64_t first = start < 0 ? start + d : start;
  first = std::clamp<int64_t>(first, 0, step > 0 ? d : d - 1);
  int64_t beyond = 0;
  if (end == std::numeric_limits<int64_t>::max() || end == std::numeric_limits<int32_t>::max())
    beyond = step > 0 ? d : -1;
  else
    beyond = std::clamp<int64_t>(end < 0 ? end + d : end, step > 0 ? 0 : -1, d);
  // In 128 bits: the step may be INT64_MIN.
  const __int128 span = step > 0 ? static_cast<__int128>(beyond) - first : static_cast<__int128>(first) - beyond;
  const __int128 stride = step > 0 ? static_cast<__int128>(step) : -static_cast<__int128>(step);
  if (span > 0) w.dy = static_cast<int64_t>((span - 1) / stride + 1);
  if (w.dy <= 1) w.step = 1;
  w.lo = w.dy == 0 ? 0 : w.step > 0 ? first : first + (w.dy - 1) * w.step;
  return w;
}

InlineVector<int64_t, max_rank> read_vector(const OpSchema& schema, const Request& request, int input) {
  const Operand& operand = request.input(input);
  if (operand.dims.size() != 1)
    bad(schema, fmt::format("{} has rank {} (shape {}); it must have rank 1", describe_input(schema, input),
                            operand.dims.size(), to_string(operand.dims)));
  return read_ints(schema, request, input);
}

void same_length(const OpSchema& schema, int input, int got, int wanted) {
  if (got != wanted)
    bad(schema, fmt::format("{} has {} values; it must have {}, as many as starts", describe_input(schema, input), got,
                            wanted));
}

// One dim an axis of shape, before merging.
SliceDims windows(const OpSchema& schema, const Request& request, const Dims& shape) {
  const int rank = shape.size();
  const auto starts = read_vector(schema, request, in_starts), ends = read_vector(schema, request, in_ends);
  same_length(schema, in_ends, ends.size(), starts.size());
  const bool has_axes = request.input(in_axes).present, has_steps = request.input(in_steps).present;
  InlineVector<int64_t, max_rank> axes, steps;
  if (has_axes) {
    axes = read_vector(schema, request, in_axes);
    same_length(schema, in_axes, axes.size(), starts.size());
  } else if (starts.size() > rank) {
    bad(schema, fmt::format("{} has {} values; without axes at most {}, the rank of shape, are allowed",
                            describe_input(schema, in_starts), starts.size(), rank));
  }
  if (has_steps) {
    steps = read_vector(schema, request, in_steps);
    same_length(schema, in_steps, steps.size(), starts.size());
  }
  SliceDims dims;
  for (const int64_t d : shape) dims.push_back({.dx = d, .dy = d});
  uint32_t seen = 0;
  for (int i = 0; i < starts.size(); ++i) {
    const int axis =
        has_axes ? wrap_axis(schema, axes[i], rank, fmt::format("{}[{}]", describe_input(schema, in_axes), i)) : i;
    if (seen >> axis & 1)
      bad(schema, fmt::format("{}[{}] is {}; axis {} is already given, and each may be given once",
                              describe_input(schema, in_axes), i, axes[i], axis));
    seen |= 1u << axis;
    const int64_t step = has_steps ? steps[i] : 1;
    if (step == 0) bad(schema, fmt::format("{}[{}] is 0; a step must not be 0", describe_input(schema, in_steps), i));
    dims[axis] = window_of(shape[axis], starts[i], ends[i], step);
  }
  return dims;
}

void check_dy(const OpSchema& schema, const Operand& dy, const SliceDims& dims, const Dims& shape) {
  bool same = dy.dims.size() == dims.size();
  for (int d = 0; same && d < dims.size(); ++d) same = dy.dims[d] == dims[d].dy;
  if (same) return;
  Dims wanted;
  for (const SliceDim& d : dims) wanted.push_back(d.dy);
  bad(schema, fmt::format("{} has shape {}; the slice of shape {} has shape {}", describe_input(schema, in_dy),
                          to_string(dy.dims), to_string(shape), to_string(wanted)));
}

// Adjacent dims become one where dX's and dY's elements stay in line: below a contiguous window (or a whole dim) a
// whole dim. Long rows of whole cache lines stay apart from a window: its start is only known at launch, and as a
// multiple of the row it keeps stores aligned.
SliceDims merge(const SliceDims& dims, const Dims& dy_strides, int element_bytes) {
  constexpr int64_t long_row = 512;
  SliceDims merged;
  for (int i = 0; i < dims.size(); ++i) {
    SliceDim d = dims[i];
    if (d.dx == 1) continue;
    d.dy_stride = dy_strides[i];
    if (d.dy == d.dx && d.step == 1) d.step = 0;
    if (!merged.empty() && d.step == 0) {
      SliceDim& outer = merged.back();
      const bool in_line = outer.dy == 1 || outer.dy_stride == d.dy_stride * d.dy;
      const bool aligned_rows =
          outer.step == 1 && d.dx * element_bytes % ir::line_bytes == 0 && d.dx * element_bytes >= long_row;
      if ((outer.step == 0 || outer.step == 1) && in_line && !aligned_rows) {
        outer = {.dx = outer.dx * d.dx,
                 .dy = outer.dy * d.dy,
                 .dy_stride = d.dy_stride,
                 .lo = outer.lo * d.dx,
                 .step = outer.step};
        continue;
      }
    }
    merged.push_back(d);
  }
  if (merged.empty()) merged.push_back({.dx = 1, .dy = 1, .dy_stride = 1});
  return merged;
}

class SliceGrad final : public Op {
 public:
  SliceGrad()
      : Op(make_schema(),
           {{.name = "flat", .fit = fit_flat, .author = author_flat}, {.name = "direct", .author = author_direct}}) {}

 private:
  static Fit fit_flat(const Plan& plan, const ir::Target& target, bool) {
    const SliceKey key = key_of<SliceKey>(plan);
    return target.gpu && !key.accumulate && !key.empty ? Fit::preferred : Fit::none;
  }
  static ScheduleNest author_flat(KernelFrame& frame, const ir::Target& target) {
    return author(frame, target, "flat");
  }
  static ScheduleNest author_direct(KernelFrame& frame, const ir::Target& target) {
    return author(frame, target, "direct");
  }
  static ScheduleNest author(KernelFrame& frame, const ir::Target& target, const std::string& strategy) {
    author_slice_grad(frame, strategy, target);
    return [&plan = frame.plan(), &target](ir::Schedule& s) { schedule_slice_grad(s, plan, target); };
  }

  Plan plan(const Request& request) const override {
    const Operand& dy = request.input(in_dy);
    if (request.accumulate && dy.dtype == DType::boolean)
      refuse(schema(), ErrorCode::unsupported, "accumulate with dtype bool; any other dtype can be accumulated");
    const Dims shape = read_shape(schema(), request, in_shape, dy.dtype);
    const SliceDims dims = windows(schema(), request, shape);
    check_dy(schema(), dy, dims, shape);

    Plan plan;
    const int64_t size = size_of(dy.dtype), read = element_count(dy.dims), written = element_count(shape);
    plan.outputs.push_back({.dtype = dy.dtype, .dims = shape});
    SliceKey key{.accumulate = request.accumulate, .empty = read == 0, .steps = {}};
    if (read == 0) {
      plan.views.push_back({.output = true, .dtype = dy.dtype, .dims = {written}, .strides = {1}});
      plan.bytes_written = request.accumulate ? 0 : written * size;
      set_key(plan, key);
      return plan;
    }
    View in{.dtype = dy.dtype}, out{.output = true, .dtype = dy.dtype};
    for (const SliceDim& d : merge(dims, dy.strides, size_of(dy.dtype))) {
      in.dims.push_back(d.dy);
      in.strides.push_back(d.dy_stride);
      out.dims.push_back(d.dx);
      key.steps.push_back(d.step);
      if (d.step != 0) plan.params.push_back(d.lo);
    }
    out.strides = dense_strides(out.dims);
    plan.views.push_back(in);
    plan.views.push_back(out);
    plan.bytes_read = read * size * (request.accumulate ? 2 : 1);
    plan.bytes_written = (request.accumulate ? read : written) * size;
    set_key(plan, key);
    return plan;
  }
};

}  // namespace

const Op& slice_grad_op() {
  static const SliceGrad op;
  return op;
}

}  // namespace gradloom
