#include "gradloom/op.h"

#include <fmt/format.h>

#include <cstring>

#include "support/lasting.h"

namespace gradloom {
namespace {

// -1, 0 and 1 stay constants in the any-shape kernel: they decide whether a load is a broadcast, a plain or a reversed
// vector.
int64_t class_of(int64_t stride) { return stride == 0 ? 0 : stride == 1 ? 1 : stride == -1 ? 2 : 3; }

// The largest stride, in elements, whose byte count fits in i64.
int64_t furthest_stride(DType dtype) { return std::numeric_limits<int64_t>::max() / size_of(dtype); }

std::string names(const std::vector<ArgumentSchema>& arguments) {
  std::string text;
  for (const ArgumentSchema& a : arguments) text += (text.empty() ? "" : ", ") + a.name;
  return text;
}

std::string dtype_names(const std::vector<DType>& dtypes) {
  std::string text;
  for (const DType t : dtypes) text += std::string(text.empty() ? "" : ", ") + onnx_name(t);
  return text;
}

constexpr const char* attribute_types[] = {"int",  "float",  "string",
                                           "ints", "floats", "strings"};  // in the variant's order

void check_input(const OpSchema& schema, const Request& request, int i) {
  const ArgumentSchema& argument = schema.inputs[i];
  const Operand& operand = request.input(i);
  if (!operand.present) {
    if (!argument.optional)
      refuse(schema, ErrorCode::invalid_argument,
             fmt::format("{} is missing; it is required", describe_input(schema, i)));
    return;
  }
  if (std::find(argument.dtypes.begin(), argument.dtypes.end(), operand.dtype) == argument.dtypes.end())
    refuse(schema, ErrorCode::invalid_argument,
           fmt::format("{} has dtype {}; allowed: {}", describe_input(schema, i), onnx_name(operand.dtype),
                       dtype_names(argument.dtypes)));
  if (operand.dims.size() != operand.strides.size())
    refuse(schema, ErrorCode::invalid_argument,
           fmt::format("{} has {} strides for {} dims; there must be one stride a dim", describe_input(schema, i),
                       operand.strides.size(), operand.dims.size()));
  int64_t elements = 0;
  try {
    elements = element_count(operand.dims, size_of(operand.dtype));
  } catch (const Error& error) {
    refuse(schema, ErrorCode::invalid_argument, describe_input(schema, i) + ": " + error.what());
  }
  if (argument.shape_like && elements != 0 && !operand.host)
    refuse(schema, ErrorCode::invalid_argument,
           fmt::format("{} has no host data; its values must be in host memory", describe_input(schema, i)));
}

// Presence, dtype (Error naming what is allowed), no surplus input.
void check_schema(const OpSchema& schema, const Request& request) {
  if (request.inputs.size() > schema.inputs.size())
    refuse(schema, ErrorCode::invalid_argument,
           fmt::format("{} inputs given; at most {} are allowed ({})", request.inputs.size(), schema.inputs.size(),
                       names(schema.inputs)));
  for (int i = 0; i < static_cast<int>(schema.inputs.size()); ++i) check_input(schema, request, i);
  for (int o = 0; o < static_cast<int>(schema.outputs.size()); ++o)
    if (!schema.outputs[o].optional && !(request.outputs_wanted >> o & 1))
      refuse(schema, ErrorCode::invalid_argument,
             fmt::format("output {} ({}) is not asked for; it is required", o, schema.outputs[o].name));
}

}  // namespace

const Operand& Request::input(int i) const {
  static constinit Lasting<const Operand> absent;
  return i >= 0 && static_cast<size_t>(i) < inputs.size() ? inputs[i] : *absent;
}

int64_t stride_class(const View& view) {
  if (is_dense(view.dims, view.strides)) return 0;
  int64_t code = 1;
  for (const int64_t stride : view.strides) code = code * 4 + class_of(stride);
  return code;
}

bool serves_any_shape(const Plan& plan) {
  for (const View& view : plan.views) {
    const int64_t furthest = furthest_stride(view.dtype);
    int64_t elements = 1;
    for (int64_t dim : view.dims) {
      if (dim < view.least_of_a_dim || dim > view.most_of_a_dim || dim > ir::max_elements / elements) return false;
      elements *= std::max<int64_t>(dim, 1);
    }
    for (int64_t stride : view.strides)
      if (stride < -furthest || stride > furthest) return false;
  }
  return true;
}

KernelFrame::KernelFrame(std::string name, const Plan& plan, bool any_shape, int64_t output_alignment,
                         int64_t input_alignment)
    : builder(std::move(name)),
      plan_(plan),
      any_shape_(any_shape && serves_any_shape(plan)),
      output_alignment_(output_alignment),
      input_alignment_(input_alignment) {}

ir::Buffer KernelFrame::view(int v, std::string name, bool inout) {
  const View& view = plan_.views[v];
  const bool dense = is_dense(view.dims, view.strides);
  const int64_t furthest = furthest_stride(view.dtype);
  ir::BufferNode node{.name = name, .dtype = view.dtype};
  for (int d = 0; d < view.dims.size(); ++d) {
    if (!any_shape_) {
      node.dims.push_back(view.dims[d]);
      continue;
    }
    node.dims.push_back(builder.scalar(name + "_d" + std::to_string(d), view.least_of_a_dim, view.most_of_a_dim));
    sources_.push_back({ScalarSource::dim, v, d});
  }
  for (int d = 0; d < view.dims.size() && !dense; ++d) {
    if (!any_shape_ || class_of(view.strides[d]) != 3) {
      node.strides.push_back(view.strides[d]);
      continue;
    }
    node.strides.push_back(builder.scalar(name + "_s" + std::to_string(d), -furthest, furthest));
    sources_.push_back({ScalarSource::stride, v, d});
  }
  node.role = !view.output ? ir::Role::in : inout ? ir::Role::inout : ir::Role::out;
  node.alignment = view.output ? output_alignment_ : input_alignment_;
  return builder.parameter(ir::make_buffer(std::move(node)));
}

ir::Expr KernelFrame::param(int p, std::string name, ir::Expr min, ir::Expr max) {
  sources_.push_back({ScalarSource::param, 0, p});
  return builder.scalar(std::move(name), std::move(min), std::move(max));
}

Op::Op(OpSchema schema, std::vector<Strategy> strategies)
    : schema_(std::move(schema)), strategies_(std::move(strategies)) {
  for (const Strategy& s : strategies_) weakest_ = std::max(weakest_, s.level);
  if (strategies_.empty() || strategies_.back().level != Determinism::sequential)
    throw Error(ErrorCode::invalid_argument, schema_.name + ": the last strategy is to be the definition, sequential");
  for (const Strategy& s : strategies_)
    if (s.name.empty() || !s.author || &find_strategy(*this, s.name) != &s)
      throw Error(ErrorCode::invalid_argument,
                  fmt::format("{}: strategy \"{}\" has no name of its own or no author", schema_.name, s.name));
}

void Op::check_attributes(const Attributes& attributes) const {
  for (const auto& [name, value] : attributes) {
    const AttributeSchema* known = nullptr;
    for (const AttributeSchema& a : schema_.attributes)
      if (a.name == name) known = &a;
    if (!known) {
      std::string allowed;
      for (const AttributeSchema& a : schema_.attributes) allowed += (allowed.empty() ? "" : ", ") + a.name;
      refuse(schema_, ErrorCode::invalid_argument,
             fmt::format("unknown attribute '{}'; allowed: {}", name, allowed.empty() ? "none" : allowed));
    }
    const char* type = attribute_types[value.index()];
    if (known->type != type)
      refuse(schema_, ErrorCode::invalid_argument,
             fmt::format("attribute {} is of type {}; it must be of type {}", name, type, known->type));
  }
}

Plan Op::check(const Request& request) const {
  check_schema(schema_, request);
  check_attributes(request.attributes);
  Plan plan = this->plan(request);
  for (int v = 0; v < plan.views.size(); ++v) {
    const View& view = plan.views[v];
    const int count = view.output ? plan.outputs.size() : static_cast<int>(schema_.inputs.size());
    if (view.index < 0 || view.index >= count || view.strides.size() != view.dims.size())
      throw Error(
          ErrorCode::internal,
          fmt::format("{}: view {} of its plan is of {} {} of {}, with {} dims and {} strides", schema_.name, v,
                      view.output ? "output" : "input", view.index, count, view.dims.size(), view.strides.size()));
  }
  plan.determinism = std::min(request.determinism, weakest_);
  return plan;
}

Error Op::explain(const Request&, const Plan&, int64_t, const std::function<int64_t(int, int64_t)>&) const {
  return Error(ErrorCode::internal, schema_.name + ": a check failed, but its kernel has none");
}

Dims Op::found_dims(const Plan& plan, int output, std::span<void* const>) const { return plan.outputs[output].dims; }

void refuse(const OpSchema& schema, ErrorCode code, const std::string& what) {
  throw Error(code, schema.name + ": " + what);
}

std::string describe_input(const OpSchema& schema, int input) {
  return fmt::format("input {} ({})", input, schema.inputs[input].name);
}

int64_t int_attribute(const Request& request, std::string_view name, int64_t otherwise) {
  const auto found = request.attributes.find(name);
  if (found == request.attributes.end()) return otherwise;
  const int64_t* value = std::get_if<int64_t>(&found->second);
  if (!value) throw Error(ErrorCode::invalid_argument, fmt::format("attribute {} must be of type int", name));
  return *value;
}

InlineVector<int64_t, max_rank> read_ints(const OpSchema& schema, const Request& request, int input) {
  const Operand& operand = request.input(input);
  const int64_t count = element_count(operand.dims);
  if (count > max_rank)
    refuse(schema, ErrorCode::unsupported,
           fmt::format("{} has {} values; at most {} are supported", describe_input(schema, input), count, max_rank));
  InlineVector<int64_t, max_rank> values;
  for (int64_t i = 0; i < count; ++i) {
    int64_t value = 0;
    int32_t narrow = 0;
    if (operand.dtype == DType::i32) {
      std::memcpy(&narrow, static_cast<const char*>(operand.host) + i * sizeof(narrow), sizeof(narrow));
      value = narrow;
    } else {
      std::memcpy(&value, static_cast<const char*>(operand.host) + i * sizeof(value), sizeof(value));
    }
    values.push_back(value);
  }
  return values;
}

Dims read_shape(const OpSchema& schema, const Request& request, int input, DType dtype) {
  const Operand& operand = request.input(input);
  if (operand.dims.size() != 1 && operand.dims.size() != 2)
    refuse(schema, ErrorCode::invalid_argument,
           fmt::format("{} has rank {} (shape {}); it must have rank 1 or 2", describe_input(schema, input),
                       operand.dims.size(), to_string(operand.dims)));
  const Dims shape = read_ints(schema, request, input);
  for (int d = 0; d < shape.size(); ++d)
    if (shape[d] < 0)
      refuse(schema, ErrorCode::invalid_argument,
             fmt::format("{}[{}] is {}; dims must be 0 or more", describe_input(schema, input), d, shape[d]));
  try {
    element_count(shape, size_of(dtype));
  } catch (const Error& error) {
    refuse(schema, ErrorCode::invalid_argument, describe_input(schema, input) + ": " + error.what());
  }
  return shape;
}

namespace {

template <class What>
int wrapped_axis(const OpSchema& schema, int64_t axis, int rank, What&& what) {
  if (axis < -rank || axis >= rank) {
    if (rank == 0)
      refuse(schema, ErrorCode::invalid_argument, fmt::format("{} is {}; rank 0 has no axes", what(), axis));
    refuse(schema, ErrorCode::invalid_argument,
           fmt::format("{} is {}; it must be in [{}, {}] for rank {}", what(), axis, -rank, rank - 1, rank));
  }
  return static_cast<int>(axis < 0 ? axis + rank : axis);
}

}  // namespace

int wrap_axis(const OpSchema& schema, int64_t axis, int rank, const std::string& what) {
  return wrapped_axis(schema, axis, rank, [&] { return what; });
}

int wrap_axis(const OpSchema& schema, int64_t axis, int rank, int input, int position) {
  return wrapped_axis(schema, axis, rank,
                      [&] { return fmt::format("{}[{}]", describe_input(schema, input), position); });
}

}  // namespace gradloom
