// EmbeddingBagGrad: the gradient of the table of PyTorch's EmbeddingBag. What its arguments mean and which are refused.
#include "ops/bags/embedding_bag_grad.h"

#include <fmt/format.h>

#include "ops/index_error.h"
#include "ops/patterns/padding_index.h"
#include "ops/patterns/scatter.h"
#include "ops/registry.h"
#include "support/lasting.h"

namespace gradloom {
namespace {

constexpr int in_shape = 0, in_indices = 1, in_offsets = 2, in_dy = 3, in_weights = 4, in_chosen = 5;

OpSchema make_schema() {
  const std::vector<DType> floats = dtypes_where(is_float), index{DType::i32, DType::i64};
  OpSchema s;
  s.name = "EmbeddingBagGrad";
  s.doc = "The gradient of EmbeddingBag: zeros of `shape`, with each bag's row of dY added at its indices.";
  s.inputs = {
      {.name = "shape", .dtypes = {DType::i64}, .shape_like = true, .doc = "the shape of dX, of rank 2: rows, columns"},
      {.name = "indices", .dtypes = index, .doc = "rank 1: rows, bag after bag; values in [-rows, rows-1]"},
      {.name = "offsets",
       .dtypes = index,
       .doc = "rank 1: each bag's first position in indices, from 0, nondecreasing"},
      {.name = "dY", .dtypes = floats, .doc = "[bags, columns]: the gradient of EmbeddingBag's output", .type = "T"},
      {.name = "per_sample_weights",
       .optional = true,
       .dtypes = floats,
       .doc = "the shape of indices: what the row of each was multiplied by; mode sum only",
       .type = "T"},
      {.name = "max_indices",
       .optional = true,
       .dtypes = index,
       .doc = "[bags, columns]: the row that each element of the output is from; mode max only, which needs it"}};
  s.outputs = {{.name = "dX",
                .dtypes = floats,
                .doc = "the gradient of the table; duplicates are summed in the order of indices",
                .type = "T"}};
  s.attributes = {
      {"mode", "string", "\"sum\", \"mean\" or \"max\" of a bag's rows; default \"mean\"", std::string("mean")},
      {"padding_idx", "int", "indices of this row are in no bag, negative counts from the end; default: none"},
      {"include_last_offset", "int", "1: offsets ends with the number of indices; default 0", int64_t{0}},
      {"scale_grad_by_freq", "int",
       "1: each row's gradient is divided by how often indices name it; not of max; default 0", int64_t{0}}};
  return s;
}

class EmbeddingBagGrad final : public Op {
 public:
  EmbeddingBagGrad() : Op(make_schema(), {embedding_bag_touched(), embedding_bag_grouped(), embedding_bag_direct()}) {}

  // Positions of checks: offsets, then indices, then max_indices.
  Error explain(const Request& request, const Plan& plan, int64_t position,
                const std::function<int64_t(int, int64_t)>& values) const override {
    const int64_t offsets = request.input(in_offsets).dims[0], count = request.input(in_indices).dims[0],
                  rows = plan.outputs[0].dims[0];
    if (position < offsets) {
      const int64_t before = position == 0 ? 0 : values(in_offsets, position - 1), value = values(in_offsets, position);
      const bool last = position == request.input(in_dy).dims[0];
      const std::string allowed = position == 0 ? "0"
                                  : last        ? std::to_string(count)
                                                : fmt::format("in [{}, {}]", before, count);
      return Error(ErrorCode::invalid_argument,
                   fmt::format("{}: {}[{}] is {}; it must be {}", schema().name, describe_input(schema(), in_offsets),
                               position, value, allowed));
    }
    int64_t at = position - offsets;
    const bool of_indices = at < count;
    if (!of_indices) at -= count;
    const int input = of_indices ? in_indices : in_chosen;
    const int64_t columns = plan.outputs[0].dims[1];
    const std::string where = of_indices ? fmt::format("[{}]", at) : fmt::format("[{},{}]", at / columns, at % columns);
    return index_error(schema(), input, where, values(input, at), rows);
  }

 private:
  [[noreturn]] void bad(const std::string& what) const { refuse(schema(), ErrorCode::invalid_argument, what); }

  const Operand& ranked(const Request& request, int input, int rank) const {
    const Operand& operand = request.input(input);
    if (operand.dims.size() != rank)
      bad(fmt::format("{} has rank {} (shape {}); it must have rank {}", describe_input(schema(), input),
                      operand.dims.size(), to_string(operand.dims), rank));
    return operand;
  }
  void require_shape(const Request& request, int input, const Dims& wanted, const std::string& why) const {
    const Dims& dims = request.input(input).dims;
    if (!(dims == wanted))
      bad(fmt::format("{} has shape {}; {} it must be {}", describe_input(schema(), input), to_string(dims), why,
                      to_string(wanted)));
  }
  bool flag(const Request& request, const char* name) const {
    const int64_t value = int_attribute(request, name, 0);
    if (value != 0 && value != 1) bad(fmt::format("attribute {} is {}; it must be 0 or 1", name, value));
    return value == 1;
  }
  BagKey::Mode mode(const Request& request) const {
    const auto found = request.attributes.find("mode");
    if (found == request.attributes.end()) return BagKey::mean;
    const std::string& name = std::get<std::string>(found->second);
    if (name == "sum") return BagKey::sum;
    if (name == "max") return BagKey::max;
    if (name != "mean") bad(fmt::format("attribute mode is \"{}\"; it must be \"sum\", \"mean\" or \"max\"", name));
    return BagKey::mean;
  }

  Plan plan(const Request& request) const override {
    const Operand &indices = ranked(request, in_indices, 1), &offsets = ranked(request, in_offsets, 1),
                  &dy = ranked(request, in_dy, 2), &weights = request.input(in_weights),
                  &chosen = request.input(in_chosen);
    const Dims shape = read_shape(schema(), request, in_shape, dy.dtype);
    if (shape.size() != 2)
      bad(fmt::format("{} has {} values; it must have 2: rows and columns", describe_input(schema(), in_shape),
                      shape.size()));
    const int64_t rows = shape[0];
    const std::optional<int64_t> padding = padding_index(schema(), request, rows);
    BagKey key{.accumulate = request.accumulate,
               .mode = mode(request),
               .last_offset = flag(request, "include_last_offset"),
               .by_frequency = flag(request, "scale_grad_by_freq"),
               .padding = padding.has_value(),
               .weights = weights.present};
    const int64_t count = indices.dims[0], bags = offsets.dims[0] - key.last_offset;
    if (bags < 0)
      bad(fmt::format("{} is empty; with include_last_offset it must have a value",
                      describe_input(schema(), in_offsets)));
    require_shape(request, in_dy, {bags, shape[1]}, fmt::format("for {} bags and {} columns", bags, shape[1]));
    if (key.weights) {
      if (key.mode != BagKey::sum)
        bad(fmt::format("{} is given; only mode \"sum\" has weights", describe_input(schema(), in_weights)));
      require_shape(request, in_weights, indices.dims, "as indices");
      if (weights.dtype != dy.dtype)
        bad(fmt::format("{} has dtype {}; it must have dY's, {}", describe_input(schema(), in_weights),
                        to_string(weights.dtype), to_string(dy.dtype)));
    }
    if (chosen.present != (key.mode == BagKey::max))
      bad(fmt::format("{} is {}; mode \"max\" needs it, and no other one has it", describe_input(schema(), in_chosen),
                      chosen.present ? "given" : "missing"));
    if (chosen.present) require_shape(request, in_chosen, dy.dims, "as dY");
    if (key.by_frequency && key.mode == BagKey::max)
      refuse(schema(), ErrorCode::unsupported, "scale_grad_by_freq with mode \"max\"");
    if (count != 0 && bags == 0)
      bad(fmt::format("{} has {} values, but offsets gives no bag", describe_input(schema(), in_indices), count));
    if (count != 0 && rows == 0)
      refuse(schema(), ErrorCode::out_of_range,
             fmt::format("{} has {} values, but shape {} has no rows, so that no index is allowed",
                         describe_input(schema(), in_indices), count, to_string(shape)));

    Plan plan;
    plan.outputs.push_back({.dtype = dy.dtype, .dims = shape});
    const auto view = [&](int input, const Operand& operand) {
      plan.views.push_back({.index = input,
                            .dtype = operand.dtype,
                            .dims = operand.dims,
                            .strides = operand.strides,
                            .most_of_a_dim = most_of_a_dim});
      plan.bytes_read += element_count(operand.dims, size_of(operand.dtype)) * size_of(operand.dtype);
    };
    view(in_indices, indices);
    view(in_offsets, offsets);
    view(in_dy, dy);
    if (key.weights) view(in_weights, weights);
    if (chosen.present) view(in_chosen, chosen);
    plan.views.push_back({.output = true,
                          .dtype = dy.dtype,
                          .dims = shape,
                          .strides = dense_strides(shape),
                          .most_of_a_dim = most_of_a_dim});
    plan.bytes_written = element_count(shape) * size_of(dy.dtype);
    if (request.accumulate) plan.bytes_read += plan.bytes_written;
    if (padding) plan.params.push_back(*padding);
    set_key(plan, key);
    return plan;
  }
};

}  // namespace

const Op& embedding_bag_grad_op() {
  static constinit Lasting<const EmbeddingBagGrad> op;
  return *op;
}

}  // namespace gradloom
