// GatherGrad (ORT, com.microsoft): the gradient of ONNX Gather.
#include <fmt/format.h>

#include "ops/gather/gather_common.h"
#include "ops/registry.h"
#include "support/lasting.h"

namespace gradloom {
namespace {

constexpr int in_shape = 0, in_indices = 1, in_dy = 2;

OpSchema make_schema() {
  const std::vector<DType> floats = dtypes_where(is_float);
  OpSchema s;
  s.name = "GatherGrad";
  s.doc = "The gradient of Gather: zeros of `shape`, with every slice of dY added at its index along `axis`.";
  s.inputs = {
      {.name = "shape", .dtypes = {DType::i64}, .shape_like = true, .doc = "the shape of dX"},
      {.name = "indices", .dtypes = {DType::i32, DType::i64}, .doc = "any shape; values in [-s, s-1] for a dim of s"},
      {.name = "dY", .dtypes = floats, .doc = "shape with the dim `axis` replaced by indices' dims", .type = "T"}};
  s.outputs = {{.name = "dX",
                .dtypes = floats,
                .doc = "the gradient of Gather's data; duplicates are summed in index order",
                .type = "T"}};
  s.attributes = {{"axis", "int", "the gathered axis of dX, negative counts from the end; default 0", int64_t{0}}};
  return s;
}

class GatherGrad final : public GatherOp {
 public:
  GatherGrad() : GatherOp(make_schema()) {}

 private:
  Plan plan(const Request& request) const override {
    const Operand &indices = request.input(in_indices), &dy = request.input(in_dy);
    const Dims shape = read_shape(schema(), request, in_shape, dy.dtype);
    const int axis = axis_of(request, shape.size());
    if (shape.size() - 1 + indices.dims.size() > max_rank)
      refuse(
          schema(), ErrorCode::unsupported,
          fmt::format("dY of rank {}; at most rank {} is supported", shape.size() - 1 + indices.dims.size(), max_rank));
    Dims wanted;
    for (int d = 0; d < axis; ++d) wanted.push_back(shape[d]);
    wanted.append(std::span<const int64_t>(indices.dims.data(), indices.dims.size()));
    for (int d = axis + 1; d < shape.size(); ++d) wanted.push_back(shape[d]);
    if (!(dy.dims == wanted))
      refuse(schema(), ErrorCode::invalid_argument,
             fmt::format("{} has shape {}; for shape {}, indices of shape {} and axis {} it must be {}",
                         describe_input(schema(), in_dy), to_string(dy.dims), to_string(shape), to_string(indices.dims),
                         axis, to_string(wanted)));
    require_indexable(request, in_indices, shape, axis);
    return gather_plan({indices, dy, shape, axis}, false, request, in_indices);
  }
};

}  // namespace

const Op& gather_grad_op() {
  static constinit Lasting<const GatherGrad> op;
  return *op;
}

}  // namespace gradloom
