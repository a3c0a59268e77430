// BroadcastGrad: the gradient of a broadcast, dY summed down to `shape` (ONNX ReduceSum over BroadcastGradientArgs'
// axes, then Reshape).
#include "ops/broadcast/broadcast_grad.h"

#include <fmt/format.h>

#include "gradloom/merge_dims.h"
#include "gradloom/schedule_common.h"
#include "ops/registry.h"
#include "support/lasting.h"

namespace gradloom {
namespace {

constexpr int in_dy = 0, in_shape = 1;

OpSchema make_schema() {
  const std::vector<DType> floats = dtypes_where(is_float);
  OpSchema s;
  s.name = "BroadcastGrad";
  s.doc = "dY summed over the axes in which `shape`, right-aligned, is absent or 1.";
  s.inputs = {{.name = "dY", .dtypes = floats, .doc = "the gradient of the broadcast result", .type = "T"},
              {.name = "shape",
               .dtypes = {DType::i64},
               .shape_like = true,
               .doc = "the operand's shape: what dX gets; must broadcast to dY's"}};
  s.outputs = {{.name = "dX",
                .dtypes = floats,
                .doc = "the gradient of the operand; f16 and bf16 are summed in float32",
                .type = "T"}};
  return s;
}

// dX of an empty dY: empty sums, that is zeros; with `accumulate` they are added to the gradient in dX.
ScheduleNest author_empty_sums(KernelFrame& frame, const ir::Target& target) {
  const bool accumulate = ReduceRoles(frame.plan()).accumulate;
  frame.view(0, "dY");
  const ir::Buffer x = frame.view(1, "dX", accumulate);
  const DType sum = accumulator_of(x->dtype);
  const std::vector<ir::Loop> loops = frame.builder.loops("empty", x->dims, [&](const std::vector<ir::Expr>& i) {
    const ir::Expr zero = ir::zero({sum, 1});
    frame.builder.store(x, i, ir::cast(x->dtype, accumulate ? ir::cast(sum, ir::load(x, i)) + zero : zero));
  });
  if (target.gpu) return {};
  const int bytes = size_of(accumulate ? sum : x->dtype);
  return [loops, bytes, &plan = frame.plan(), &target](ir::Schedule& s) {
    if (worth_threads(plan.bytes_read + plan.bytes_written, target) && loops.size() > 1) s.parallel(loops[0]);
    vectorize_elements(s, loops.back(), bytes, 4, target);
  };
}

// A kernel specialised for an empty dY is the same in every strategy.
auto unless_empty(ScheduleNest (*author)(KernelFrame&, const ir::Target&)) {
  return [author](KernelFrame& frame, const ir::Target& target) {
    const bool empty = !frame.any_shape() && element_count(frame.plan().views[0].dims) == 0;
    return empty ? author_empty_sums(frame, target) : author(frame, target);
  };
}

class BroadcastGrad final : public Op {
 public:
  BroadcastGrad()
      : Op(make_schema(), {{.name = "staged", .fit = fit_staged, .author = unless_empty(author_broadcast_staged)},
                           {.name = "split", .fit = fit_split, .author = unless_empty(author_broadcast_split)},
                           {.name = "direct", .author = unless_empty(author_broadcast_direct)}}) {}

 private:
  static Fit fit_staged(const Plan& plan, const ir::Target& target, bool) {
    constexpr int most_dims = 6;  // whose indices are recovered from one fused grid loop
    const ReduceRoles roles(plan);
    return target.gpu && !roles.reduced.empty() && roles.rank() <= most_dims ? Fit::preferred : Fit::none;
  }
  static Fit fit_split(const Plan& plan, const ir::Target& target, bool) {
    const ReduceRoles roles(plan);
    if (target.gpu || roles.reduced.size() != 1 || roles.kept.size() > (roles.columns() ? 1 : 0)) return Fit::none;
    return worth_threads(plan.bytes_read, target) ? Fit::preferred : Fit::possible;
  }

  Plan plan(const Request& request) const override {
    const Operand& dy = request.input(in_dy);
    const Dims shape = read_shape(schema(), request, in_shape, dy.dtype);
    const int lead = dy.dims.size() - shape.size();
    if (lead < 0)
      refuse(schema(), ErrorCode::invalid_argument,
             fmt::format("{} has rank {} (shape {}); shape {} needs at least rank {}", describe_input(schema(), in_dy),
                         dy.dims.size(), to_string(dy.dims), to_string(shape), shape.size()));
    // An empty sum visits no elements, whatever the other dims are: only loops over dX remain, if dX has elements.
    // Strides do not matter then, so only their roles keep dims from being merged, as for a dense dY.
    const bool empty = element_count(dy.dims) == 0, no_output = element_count(shape) == 0;
    LoopDims dims;
    for (int d = 0; d < dy.dims.size(); ++d) {
      const bool reduced = d < lead || shape[d - lead] == 1;
      if (!reduced && dy.dims[d] != shape[d - lead])
        refuse(
            schema(), ErrorCode::invalid_argument,
            fmt::format("{} has {} in dim {} (shape {}); for shape {} it must be {}", describe_input(schema(), in_dy),
                        dy.dims[d], d, to_string(dy.dims), to_string(shape), shape[d - lead]));
      const int64_t extent = empty && dy.dims[d] != 1 && (reduced || no_output) ? 0 : dy.dims[d];
      dims.push_back({.role = reduced, .full = extent, .extent = extent, .strides = {empty ? 0 : dy.strides[d]}});
    }

    Plan plan;
    plan.outputs.push_back({.dtype = dy.dtype, .dims = shape});
    ReduceKey key{.accumulate = request.accumulate, .roles = {}};
    View in{.dtype = dy.dtype}, out{.output = true, .dtype = dy.dtype};
    for (const LoopDim& d : merge_dims(dims)) {
      in.dims.push_back(d.extent);
      in.strides.push_back(d.strides[0]);
      if (d.role == 0) out.dims.push_back(d.extent);
      key.roles.push_back(d.role);
    }
    if (out.dims.empty()) out.dims.push_back(1);
    out.strides = dense_strides(out.dims);
    plan.views.push_back(in);
    plan.views.push_back(out);
    const int64_t size = size_of(dy.dtype), written = element_count(shape) * size;
    plan.bytes_read = element_count(dy.dims) * size + (request.accumulate ? written : 0);
    plan.bytes_written = written;
    set_key(plan, key);
    return plan;
  }
};

}  // namespace

const Op& broadcast_grad_op() {
  static constinit Lasting<const BroadcastGrad> op;
  return *op;
}

}  // namespace gradloom
