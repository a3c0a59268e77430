// IndexGrad: the gradient of x[i, j, ..], of numpy's and PyTorch's indexing by several tensors. What its arguments mean
// and which are refused.
#include "ops/sparse/index_grad.h"

#include <fmt/format.h>

#include "gradloom/merge_dims.h"
#include "ops/index_error.h"
#include "ops/patterns/scatter.h"
#include "ops/registry.h"
#include "support/lasting.h"

namespace gradloom {
namespace {

constexpr int in_shape = 0, in_dy = 1, in_indices = 2;

OpSchema make_schema() {
  const std::vector<DType> floats = dtypes_where(is_float), index{DType::i32, DType::i64};
  OpSchema s;
  s.name = "IndexGrad";
  s.doc = "The gradient of x[.., i, j, ..]: zeros of `shape`, with every slice of dY added at its indices.";
  s.inputs = {{.name = "shape", .dtypes = {DType::i64}, .shape_like = true, .doc = "the shape of dX"},
              {.name = "dY",
               .dtypes = floats,
               .doc = "shape with the broadcast indices' dims in place of `axes`: at the first of them where they are "
                      "neighbours, else in front",
               .type = "T"}};
  for (int i = 0; i < max_index_inputs; ++i)
    s.inputs.push_back({.name = fmt::format("indices{}", i),
                        .optional = i > 0,
                        .dtypes = index,
                        .doc = i == 0 ? "of the first axis: any shape; values in [-s, s-1] for a dim of s"
                                      : "of the next axis; the indices' shapes are broadcast together"});
  s.outputs = {{.name = "dX",
                .dtypes = floats,
                .doc = "the gradient of x; duplicates are summed in the order of dY",
                .type = "T"}};
  s.attributes = {{"axes", "ints", "the indexed axes of dX, ascending, one an input; default: the first ones"}};
  return s;
}

constexpr int max_strided = max_index_inputs + 1;  // dY, then the indices
using IndexDim = LoopDimOf<max_strided>;
using IndexDims = LoopDimsOf<max_strided>;

// The indices of a call, broadcast.
struct Indices {
  int count = 0;
  Dims dims;
  std::array<int, max_index_inputs> axes{};
};

class IndexGrad final : public Op {
 public:
  IndexGrad() : Op(make_schema(), {index_touched(), index_grouped(), index_direct()}) {}

  Error explain(const Request& request, const Plan& plan, int64_t position,
                const std::function<int64_t(int, int64_t)>& values) const override {
    const Indices indices = read_indices(request, plan.outputs[0].dims.size());
    Dims at;
    at.resize(indices.dims.size());
    for (int d = at.size(); d-- > 0; position /= indices.dims[d]) at[d] = position % indices.dims[d];
    for (int i = 0; i < indices.count; ++i) {
      const Dims& dims = request.input(in_indices + i).dims;
      const int lead = at.size() - dims.size();
      Dims own;
      int64_t element = 0;
      for (int d = 0; d < dims.size(); ++d) {
        own.push_back(dims[d] == 1 ? 0 : at[lead + d]);
        element = element * dims[d] + own[d];
      }
      const int64_t value = values(in_indices + i, element), size = plan.outputs[0].dims[indices.axes[i]];
      if (value < -size || value >= size) return index_error(schema(), in_indices + i, to_string(own), value, size);
    }
    return Error(ErrorCode::out_of_range, schema().name + ": an index was out of range, and was changed meanwhile");
  }

 private:
  [[noreturn]] void bad(const std::string& what) const { refuse(schema(), ErrorCode::invalid_argument, what); }

  Indices read_indices(const Request& request, int rank) const {
    Indices indices;
    while (indices.count < max_index_inputs && request.input(in_indices + indices.count).present) ++indices.count;
    for (int i = indices.count; i < max_index_inputs; ++i)
      if (request.input(in_indices + i).present)
        bad(fmt::format("{} is given, but {} is not", describe_input(schema(), in_indices + i),
                        describe_input(schema(), in_indices + indices.count)));
    const auto given = request.attributes.find("axes");
    std::vector<int64_t> axes;
    if (given != request.attributes.end())
      axes = std::get<std::vector<int64_t>>(given->second);
    else
      for (int i = 0; i < indices.count; ++i) axes.push_back(i);
    if (static_cast<int>(axes.size()) != indices.count)
      bad(fmt::format("attribute axes has {} values for {} indices; there must be one an input", axes.size(),
                      indices.count));
    for (int i = 0; i < indices.count; ++i) {
      indices.axes[i] = wrap_axis(schema(), axes[i], rank, fmt::format("axis {} of the indices", i));
      if (i > 0 && indices.axes[i] <= indices.axes[i - 1])
        bad(fmt::format("attribute axes has {} after {}; axes must ascend", axes[i], axes[i - 1]));
      const Dims& dims = request.input(in_indices + i).dims;
      while (indices.dims.size() < dims.size()) {  // right-aligned
        Dims wider{1};
        wider.append(std::span<const int64_t>(indices.dims.data(), indices.dims.size()));
        indices.dims = wider;
      }
      for (int d = 0; d < dims.size(); ++d) {
        int64_t& all = indices.dims[indices.dims.size() - dims.size() + d];
        if (all == 1) all = dims[d];
        if (dims[d] != all && dims[d] != 1)
          bad(fmt::format("{} has shape {}, which does not broadcast with the indices before it, of {}",
                          describe_input(schema(), in_indices + i), to_string(dims), to_string(indices.dims)));
      }
    }
    try {
      element_count(indices.dims);
    } catch (const Error& error) {
      bad(fmt::format("the indices broadcast to {}: {}", to_string(indices.dims), error.what()));
    }
    return indices;
  }

  // dY's dims, with the one that each of dX's has there; dims of indices are negative: ~d.
  Dims dy_axes(const Indices& indices, int rank) const {
    const int first = indices.axes[0], last = indices.axes[indices.count - 1];
    const int at = last - first + 1 == indices.count ? first : 0;
    Dims axes;
    int next = 0;
    for (int d = 0; d <= rank; ++d) {
      if (d == at)
        for (int k = 0; k < indices.dims.size(); ++k) axes.push_back(~k);
      if (d == rank) break;
      if (next < indices.count && indices.axes[next] == d)
        ++next;
      else
        axes.push_back(d);
    }
    return axes;
  }

  Plan plan(const Request& request) const override {
    const Operand& dy = request.input(in_dy);
    const Dims shape = read_shape(schema(), request, in_shape, dy.dtype);
    const Indices indices = read_indices(request, shape.size());
    if (shape.size() - indices.count + indices.dims.size() > max_rank)
      refuse(schema(), ErrorCode::unsupported,
             fmt::format("dY of rank {}; at most rank {} is supported",
                         shape.size() - indices.count + indices.dims.size(), max_rank));
    const Dims axes = dy_axes(indices, shape.size());
    Dims wanted;
    for (const int64_t axis : axes)
      wanted.push_back(axis < 0 ? indices.dims[static_cast<int>(~axis)] : shape[static_cast<int>(axis)]);
    if (!(dy.dims == wanted))
      bad(fmt::format("{} has shape {}; for shape {} and indices that broadcast to {} it must be {}",
                      describe_input(schema(), in_dy), to_string(dy.dims), to_string(shape), to_string(indices.dims),
                      to_string(wanted)));
    if (element_count(indices.dims) != 0)
      for (int i = 0; i < indices.count; ++i)
        if (shape[indices.axes[i]] == 0)
          refuse(schema(), ErrorCode::out_of_range,
                 fmt::format("{} has values, but dim {} of shape {} is 0, so that no index is allowed",
                             describe_input(schema(), in_indices + i), indices.axes[i], to_string(shape)));

    Plan plan;
    plan.outputs.push_back({.dtype = dy.dtype, .dims = shape});
    add_views(plan, request, indices, shape, axes);
    const int64_t size = size_of(dy.dtype), read = element_count(dy.dims) * size;
    plan.bytes_read = read;
    for (int i = 0; i < indices.count; ++i) {
      const Operand& index = request.input(in_indices + i);
      plan.bytes_read += element_count(index.dims) * size_of(index.dtype);
      plan.params.push_back(shape[indices.axes[i]]);
    }
    plan.bytes_written = element_count(shape) * size;
    if (request.accumulate)
      plan.bytes_written = std::min(plan.bytes_written, read), plan.bytes_read += plan.bytes_written;
    return plan;
  }

  // A dim of dX, or ~d for one of the indices, as dY and the indices have it.
  static IndexDim dim(const Request& request, const Indices& indices, const Dims& axes, int64_t axis) {
    IndexDim d;
    const Operand& dy = request.input(in_dy);
    for (int at = 0; at < axes.size(); ++at)
      if (axes[at] == axis) d.full = d.extent = dy.dims[at], d.strides[0] = dy.strides[at];
    for (int i = 0; axis < 0 && i < indices.count; ++i) {
      const Operand& index = request.input(in_indices + i);
      const int own = static_cast<int>(~axis) - (indices.dims.size() - index.dims.size());
      if (own >= 0 && index.dims[own] != 1) d.strides[1 + i] = index.strides[own];
    }
    return d;
  }

  void add_views(Plan& plan, const Request& request, const Indices& indices, const Dims& shape,
                 const Dims& axes) const {
    const DType dtype = request.input(in_dy).dtype;
    const int rank = shape.size(), first = indices.axes[0], last = indices.axes[indices.count - 1];
    bool empty = false;  // dX without elements: indices are checked all the same
    for (const int64_t axis : axes) empty |= axis >= 0 && shape[static_cast<int>(axis)] == 0;
    IndexKey key{.accumulate = request.accumulate,
                 .merged = !empty && last - first + 1 == indices.count,
                 .indices = indices.count,
                 .middle = 0};
    IndexDims middle;
    for (int k = 0; k < indices.dims.size(); ++k) middle.push_back(dim(request, indices, axes, ~k));
    middle = merge_dims(middle);
    if (middle.empty()) middle.push_back({});
    key.middle = middle.size();

    IndexDims others[2];  // dY's, outer ones and columns
    View dx{.output = true, .dtype = dtype, .most_of_a_dim = most_of_a_dim};
    const auto add = [&](int64_t extent, IndexKey::Role role) { dx.dims.push_back(extent), key.roles.push_back(role); };
    int next = 0;
    for (int d = 0; d < rank;) {
      if (next < indices.count && indices.axes[next] == d) {
        int64_t extent = shape[d++];
        ++next;
        for (; key.merged && next < indices.count; ++next) extent *= shape[d++];
        add(extent, IndexKey::indexed);
        continue;
      }
      IndexDims run;
      for (; d < rank && (next == indices.count || indices.axes[next] != d); ++d)
        run.push_back(dim(request, indices, axes, d));
      const IndexKey::Role role = next == 0 ? IndexKey::outer : IndexKey::column;
      if (empty) continue;
      for (const IndexDim& merged : merge_dims(run))
        others[role == IndexKey::column].push_back(merged), add(merged.extent, role);
    }
    if (empty) others[1].push_back({.full = 0, .extent = 0}), add(0, IndexKey::column);
    dx.strides = dense_strides(dx.dims);

    for (int i = 0; i < indices.count; ++i) {
      View index{.index = in_indices + i, .dtype = request.input(in_indices + i).dtype, .most_of_a_dim = most_of_a_dim};
      for (const IndexDim& d : middle) index.dims.push_back(d.extent), index.strides.push_back(d.strides[1 + i]);
      plan.views.push_back(index);
    }
    View dy{.index = in_dy, .dtype = dtype, .most_of_a_dim = most_of_a_dim};
    for (const IndexDims* part : {&others[0], &middle, &others[1]})
      for (const IndexDim& d : *part) dy.dims.push_back(d.extent), dy.strides.push_back(d.strides[0]);
    plan.views.push_back(dy);
    plan.views.push_back(dx);
    set_key(plan, key);
  }
};

}  // namespace

const Op& index_grad_op() {
  static constinit Lasting<const IndexGrad> op;
  return *op;
}

}  // namespace gradloom
