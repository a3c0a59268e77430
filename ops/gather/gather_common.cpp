#include "ops/gather/gather_common.h"

#include <fmt/format.h>

#include "gradloom/merge_dims.h"
#include "ir/index_math.h"
#include "ops/index_error.h"
#include "ops/patterns/scatter.h"

namespace gradloom {
namespace {

enum DimRole : int { outer_role, middle_role, inner_role };

// The axes of dY: `full` is dX's extent (the middle ones' own). Operands: dY, indices.
LoopDims loop_dims(const GatherOperands& o, bool varying) {
  LoopDims dims;
  const int index_rank = varying ? 1 : o.indices.dims.size();
  for (int d = 0; d < o.dy.dims.size(); ++d) {
    const int role = d < o.axis ? outer_role : d < o.axis + index_rank ? middle_role : inner_role;
    LoopDim dim{.role = role, .full = o.dy.dims[d], .extent = o.dy.dims[d], .strides = {o.dy.strides[d]}};
    if (varying || role == middle_role) dim.strides[1] = o.indices.strides[varying ? d : d - o.axis];
    if (role != middle_role) dim.full = o.shape[role == outer_role ? d : d - index_rank + 1];
    dims.push_back(dim);
  }
  return dims;
}

}  // namespace

Plan gather_plan(const GatherOperands& o, bool varying, const Request& request, int index_input) {
  const bool accumulate = request.accumulate;
  const DType dtype = o.dy.dtype;
  const int64_t size = size_of(dtype), written = element_count(o.shape), read = element_count(o.dy.dims),
                indices = element_count(o.indices.dims);
  const int64_t extent = o.shape[o.axis];
  Plan plan;
  GatherRoles roles{.accumulate = accumulate, .varying = varying, .index_input = index_input};
  plan.outputs.push_back({.dtype = dtype, .dims = o.shape});
  plan.bytes_written = written * size;
  if (read == 0 || written == 0) {
    roles.empty = true, roles.only_checks = indices != 0;
    set_key(plan, roles);
    if (accumulate) plan.bytes_written = 0;
    if (indices == 0) {
      plan.views.push_back({.output = true, .dtype = dtype, .dims = {written}, .strides = {1}});
      return plan;
    }
    // An outer or inner dim of 0: dX is empty too.
    plan.bytes_read = indices * size_of(o.indices.dtype);
    plan.views.push_back({.output = true, .dtype = dtype, .dims = {extent, 0}, .strides = dense_strides({extent, 0})});
    View index{.index = index_input, .dtype = o.indices.dtype};
    LoopDims dims;
    for (int d = 0; d < o.indices.dims.size(); ++d)
      dims.push_back({.role = middle_role,
                      .full = o.indices.dims[d],
                      .extent = o.indices.dims[d],
                      .strides = {o.indices.strides[d]}});
    for (const LoopDim& d : merge_dims(dims)) index.dims.push_back(d.extent), index.strides.push_back(d.strides[0]);
    if (index.dims.empty()) index.dims.push_back(1), index.strides.push_back(1);
    plan.views.push_back(index);
    return plan;
  }
  plan.bytes_read = read * size + indices * size_of(o.indices.dtype);
  if (accumulate) {  // only where dY may name it: as many columns as dY has
    plan.bytes_written = read / (varying ? o.dy.dims[o.axis] : indices) * extent * size;
    plan.bytes_read += plan.bytes_written;
  }

  View index{.index = index_input, .dtype = o.indices.dtype}, dy{.index = index_input == 1 ? 2 : 0, .dtype = dtype},
      dx{.output = true, .dtype = dtype};
  for (View* view : {&index, &dy, &dx}) view->least_of_a_dim = 1;
  const auto middle_dim = [&](int64_t k, int64_t dy_stride, int64_t index_stride) {
    dy.dims.push_back(k), dy.strides.push_back(dy_stride);
    index.dims.push_back(k), index.strides.push_back(index_stride);
  };
  int counts[3] = {0, 0, 0};
  // The middle dims follow the outer ones; a unit dim stands for them where all were merged away.
  const auto begin_middle = [&] {
    if (counts[middle_role] != 0) return;
    middle_dim(1, 1, 1);
    ++counts[middle_role];
    dx.dims.push_back(extent);
  };
  for (const LoopDim& d : merge_dims(loop_dims(o, varying))) {
    if (d.role == inner_role) begin_middle();
    if (d.role == middle_role) {
      middle_dim(d.extent, d.strides[0], d.strides[1]);
      if (counts[middle_role]++ == 0) dx.dims.push_back(extent);
      continue;
    }
    if (d.full != d.extent) roles.shorter |= 1u << (counts[outer_role] + counts[inner_role]);
    ++counts[d.role];
    dy.dims.push_back(d.extent), dy.strides.push_back(d.strides[0]);
    if (varying) index.dims.push_back(d.extent), index.strides.push_back(d.strides[1]);
    dx.dims.push_back(d.full);
  }
  begin_middle();
  dx.strides = dense_strides(dx.dims);
  roles.outer = counts[outer_role], roles.middle = counts[middle_role], roles.inner = counts[inner_role];
  set_key(plan, roles);
  plan.views.push_back(index);
  plan.views.push_back(dy);
  plan.views.push_back(dx);
  return plan;
}

GatherFrame::GatherFrame(KernelFrame& frame, const GatherRoles& r) : roles(r), b(frame.builder) {
  if (!r.empty) {
    indices = frame.view(0, "indices");
    dy = frame.view(1, "dY");
  }
  dx = frame.view(r.empty ? 0 : 2, "dX", r.accumulate);
  if (r.only_checks) indices = frame.view(1, "indices");
  sum = accumulator_of(dx->dtype);
}

GatherFrame::GatherFrame(ir::KernelBuilder& builder, const GatherRoles& r, ir::Buffer own_indices, ir::Buffer own_dy,
                         ir::Buffer own_dx)
    : roles(r),
      b(builder),
      indices(std::move(own_indices)),
      dy(std::move(own_dy)),
      dx(std::move(own_dx)),
      sum(accumulator_of(dx->dtype)) {}

std::vector<ir::Expr> GatherFrame::outer_dims(const ir::Buffer& buffer) const {
  return {buffer->dims.begin(), buffer->dims.begin() + roles.outer};
}
std::vector<ir::Expr> GatherFrame::middle_dims() const {
  return {dy->dims.begin() + roles.outer, dy->dims.begin() + roles.outer + roles.middle};
}
std::vector<ir::Expr> GatherFrame::inner_dims(const ir::Buffer& buffer) const {
  return {buffer->dims.end() - roles.inner, buffer->dims.end()};
}

GatherFrame::Index GatherFrame::joined(Index p, const Index& k, const Index& q) {
  p.insert(p.end(), k.begin(), k.end());
  p.insert(p.end(), q.begin(), q.end());
  return p;
}

GatherFrame::Index GatherFrame::index_at(const Index& p, const Index& k, const Index& q) const {
  return roles.varying ? joined(p, k, q) : k;
}

ir::Expr GatherFrame::position(const Index& index) const {
  ir::Expr flat = index[0];
  for (size_t d = 1; d < index.size(); ++d) flat = flat * indices->dims[d] + index[d];
  return flat;
}

void GatherFrame::checked_index(const Index& index, const std::function<void(ir::Expr)>& body,
                                const std::function<void(ir::Expr)>& before) const {
  checked_index(ir::load(indices, index), index, body, before);
}

void GatherFrame::checked_index(const ir::Expr& read, const Index& index, const std::function<void(ir::Expr)>& body,
                                const std::function<void(ir::Expr)>& before) const {
  const ir::Expr j = wrapped(read);
  if (before) before(j);
  b.check((j >= 0) & (j < axis_extent()), position(index), "indices", [&] { body(j); });
}

ir::Expr GatherFrame::wrapped(const ir::Expr& read) const {
  const ir::Expr raw = b.let("raw", ir::cast(DType::i64, read));
  return b.let("j", ir::select(raw < 0, raw + axis_extent(), raw));
}

ir::Expr GatherFrame::covered(const Index& p, const Index& q) const {
  ir::Expr all;
  for (int d = 0; d < roles.outer; ++d)
    if (roles.outer_shorter(d)) all = ir::both(all, p[d] < dy->dims[d]);
  for (int d = 0; d < roles.inner; ++d)
    if (roles.inner_shorter(d)) all = ir::both(all, q[d] < dy->dims[roles.outer + roles.middle + d]);
  return all;
}

void GatherFrame::store_total(const Index& index, const ir::Expr& total) const {
  b.store(dx, index, roles.accumulate ? added_to(ir::load(dx, index), total) : ir::cast(dx->dtype, total));
}

void GatherOp::require_indexable(const Request& request, int in_indices, const Dims& shape, int axis) const {
  const int64_t count = element_count(request.input(in_indices).dims);
  if (shape[axis] == 0 && count != 0)
    refuse(schema(), ErrorCode::out_of_range,
           fmt::format("{} has {} values, but dim {} of shape {} is 0, so that no index is allowed",
                       describe_input(schema(), in_indices), count, axis, to_string(shape)));
}

Error GatherOp::explain(const Request& request, const Plan& plan, int64_t position,
                        const std::function<int64_t(int, int64_t)>& values) const {
  const Dims& shape = plan.outputs[0].dims;
  const int64_t extent = shape[axis_of(request, shape.size())];
  const int input = gather_roles(plan).index_input;
  const Dims& dims = request.input(input).dims;
  Dims at;
  at.resize(dims.size());
  int64_t rest = position;
  for (int d = dims.size(); d-- > 0;) {
    at[d] = rest % dims[d];
    rest /= dims[d];
  }
  return index_error(schema(), input, to_string(at), values(input, position), extent);
}

}  // namespace gradloom
