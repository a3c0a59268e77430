// GatherElementsGrad (ORT, com.microsoft): the gradient of ONNX GatherElements.
#include <fmt/format.h>

#include "ops/gather/gather_common.h"
#include "ops/registry.h"
#include "support/lasting.h"

namespace gradloom {
namespace {

constexpr int in_dy = 0, in_shape = 1, in_indices = 2;

OpSchema make_schema() {
  const std::vector<DType> floats = dtypes_where(is_float);
  OpSchema s;
  s.name = "GatherElementsGrad";
  s.doc =
      "The gradient of GatherElements: zeros of `shape`, with every element of dY added at its own index along `axis`.";
  s.inputs = {{.name = "dY", .dtypes = floats, .doc = "the shape of indices", .type = "T"},
              {.name = "shape", .dtypes = {DType::i64}, .shape_like = true, .doc = "the shape of dX"},
              {.name = "indices",
               .dtypes = {DType::i32, DType::i64},
               .doc = "the rank of dX; off `axis`, dims up to dX's; values in [-s, s-1] for a dim of s"}};
  s.outputs = {{.name = "dX",
                .dtypes = floats,
                .doc = "the gradient of GatherElements' data; duplicates are summed in index order",
                .type = "T"}};
  s.attributes = {{"axis", "int", "the gathered axis, negative counts from the end; default 0", int64_t{0}}};
  return s;
}

class GatherElementsGrad final : public GatherOp {
 public:
  GatherElementsGrad() : GatherOp(make_schema()) {}

 private:
  Plan plan(const Request& request) const override {
    const Operand &dy = request.input(in_dy), &indices = request.input(in_indices);
    const Dims shape = read_shape(schema(), request, in_shape, dy.dtype);
    const int axis = axis_of(request, shape.size());
    if (indices.dims.size() != shape.size())
      refuse(schema(), ErrorCode::invalid_argument,
             fmt::format("{} has rank {} (shape {}); it must have rank {}, as shape {} says",
                         describe_input(schema(), in_indices), indices.dims.size(), to_string(indices.dims),
                         shape.size(), to_string(shape)));
    if (!(dy.dims == indices.dims))
      refuse(schema(), ErrorCode::invalid_argument,
             fmt::format("{} has shape {}; it must have indices' shape {}", describe_input(schema(), in_dy),
                         to_string(dy.dims), to_string(indices.dims)));
    for (int d = 0; d < shape.size(); ++d)
      if (d != axis && indices.dims[d] > shape[d])
        refuse(schema(), ErrorCode::invalid_argument,
               fmt::format("{} has {} in dim {}; off axis {} it must be at most {}, as shape {} says",
                           describe_input(schema(), in_indices), indices.dims[d], d, axis, shape[d], to_string(shape)));
    require_indexable(request, in_indices, shape, axis);
    return gather_plan({indices, dy, shape, axis}, true, request, in_indices);
  }
};

}  // namespace

const Op& gather_elements_grad_op() {
  static constinit Lasting<const GatherElementsGrad> op;
  return *op;
}

}  // namespace gradloom
