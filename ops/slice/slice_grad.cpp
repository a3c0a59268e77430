// SliceGrad (ORT, com.microsoft): the gradient of ONNX Slice. What its arguments mean and which are refused.
#include "ops/slice/slice_grad.h"

#include <fmt/format.h>

#include <limits>

#include "gradloom/merge_dims.h"
#include "ops/registry.h"
#include "support/lasting.h"

namespace gradloom {
namespace {

constexpr int in_dy = 0, in_shape = 1, in_starts = 2, in_ends = 3, in_axes = 4, in_steps = 5;

OpSchema make_schema() {
  const std::vector<DType> any = dtypes_where([](DType) { return true; });
  const std::vector<DType> index{DType::i32, DType::i64};
  OpSchema s;
  s.name = "SliceGrad";
  s.doc = "The gradient of Slice: zeros of `shape` with dY at the sliced positions.";
  s.inputs = {
      {.name = "dY", .dtypes = any, .doc = "the gradient of Slice's output; its shape is the slice's", .type = "T"},
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
  s.outputs = {{.name = "dX", .dtypes = any, .doc = "the gradient of Slice's data", .type = "T"}};
  return s;
}

[[noreturn]] void bad(const OpSchema& schema, const std::string& what) {
  refuse(schema, ErrorCode::invalid_argument, what);
}

// A window along a dim of d, as ORT clamps starts and ends. Its role is the step, as SliceKey has it; the dense operand
// is dX.
LoopDim window_of(int64_t d, int64_t start, int64_t end, int64_t step) {
  LoopDim w{.role = step, .full = d, .extent = 0};
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
  if (span > 0) w.extent = static_cast<int64_t>((span - 1) / stride + 1);
  if (w.extent <= 1) w.role = 1;
  w.first = w.extent == 0 ? 0 : w.role > 0 ? first : first + (w.extent - 1) * w.role;
  if (w.extent == d && w.role == 1) w.role = 0;
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

// One dim per axis of shape, before merging.
LoopDims windows(const OpSchema& schema, const Request& request, const Dims& shape) {
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
  LoopDims dims;
  for (const int64_t d : shape) dims.push_back({.full = d, .extent = d});
  uint32_t seen = 0;
  for (int i = 0; i < starts.size(); ++i) {
    const int axis = has_axes ? wrap_axis(schema, axes[i], rank, in_axes, i) : i;
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

void check_dy(const OpSchema& schema, const Operand& dy, const LoopDims& dims, const Dims& shape) {
  bool same = dy.dims.size() == dims.size();
  for (int d = 0; same && d < dims.size(); ++d) same = dy.dims[d] == dims[d].extent;
  if (same) return;
  Dims wanted;
  for (const LoopDim& d : dims) wanted.push_back(d.extent);
  bad(schema, fmt::format("{} has shape {}; the slice of shape {} has shape {}", describe_input(schema, in_dy),
                          to_string(dy.dims), to_string(shape), to_string(wanted)));
}

// Merges adjacent dims where dX's and dY's elements stay contiguous: a whole dim below a contiguous window (or a whole
// dim). Long rows of whole cache lines are not merged with a window: its start is only known at launch, and as a
// multiple of the row it keeps stores aligned.
LoopDims merge(const LoopDims& dims, int element_bytes) {
  constexpr int64_t long_row = 512;
  LoopDims merged = merge_dims(dims, [&](const LoopDim& outer, const LoopDim& inner) {
    const int64_t row = inner.full * element_bytes;
    const bool aligned_rows = row % ir::line_bytes == 0 && row >= long_row;
    return inner.role == 0 && (outer.role == 0 || (outer.role == 1 && !aligned_rows));
  });
  if (merged.empty()) merged.push_back({.strides = {1}});
  return merged;
}

class SliceGrad final : public Op {
 public:
  SliceGrad()
      : Op(make_schema(), {{.name = "direct", .fit = fit_direct, .author = author_slice_direct},
                           {.name = "flat", .fit = fit_flat, .author = author_slice_flat}}) {}

 private:
  static bool is_better_flat(const Plan& plan, const ir::Target& target) {
    const SliceKey key = key_of<SliceKey>(plan);
    return target.gpu && !key.accumulate && !key.empty;
  }
  static Fit fit_direct(const Plan& plan, const ir::Target& target, bool) {
    return is_better_flat(plan, target) ? Fit::possible : Fit::preferred;
  }
  static Fit fit_flat(const Plan& plan, const ir::Target& target, bool) {
    return is_better_flat(plan, target) ? Fit::preferred : Fit::possible;
  }

  Plan plan(const Request& request) const override {
    const Operand& dy = request.input(in_dy);
    if (request.accumulate && dy.dtype == DType::boolean)
      refuse(schema(), ErrorCode::unsupported, "accumulate with dtype bool; any other dtype can be accumulated");
    const Dims shape = read_shape(schema(), request, in_shape, dy.dtype);
    LoopDims dims = windows(schema(), request, shape);
    check_dy(schema(), dy, dims, shape);
    for (int d = 0; d < dims.size(); ++d) dims[d].strides = {dy.strides[d]};

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
    for (const LoopDim& d : merge(dims, size_of(dy.dtype))) {
      in.dims.push_back(d.extent);
      in.strides.push_back(d.strides[0]);
      out.dims.push_back(d.full);
      key.steps.push_back(d.role);
      if (d.role != 0) plan.params.push_back(d.first);
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
  static constinit Lasting<const SliceGrad> op;
  return *op;
}

}  // namespace gradloom
