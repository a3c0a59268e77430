#include "cli/emit_call.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <map>
#include <numeric>

#include "cli/command.h"

namespace gradloom::cli {
namespace {

Tensor ints(const std::vector<int64_t>& values) {
  return Tensor::of<int64_t>(DType::i64, {static_cast<int64_t>(values.size())}, values);
}

struct OpOptions {
  std::vector<std::string> needed, allowed;
};
const std::map<std::string, OpOptions> options_of_op{
    {"GatherElementsGrad", {{"shape", "indices-shape"}, {"dtype", "indices-dtype", "axis"}}},
    {"GatherGrad", {{"shape", "indices-shape"}, {"dtype", "indices-dtype", "axis"}}},
    {"SliceGrad", {{"shape", "starts", "ends"}, {"dtype", "axes", "steps"}}},
    {"BroadcastGrad", {{"shape", "to-shape"}, {"dtype"}}},
    {"BroadcastGradientArgs", {{"shape", "to-shape"}, {}}},
};

std::string dashed(const std::vector<std::string>& names) {
  return names.empty() ? "none" : fmt::format("--{}", fmt::join(names, " --"));
}

void check_options(const EmitShapes& shapes) {
  const auto found = options_of_op.find(shapes.op);
  if (found == options_of_op.end())
    throw UsageError(fmt::format("emit: {} needs --input for each of its inputs, or --case FILE", shapes.op));
  const auto& [needed, allowed] = found->second;
  const auto has = [](const std::vector<std::string>& list, const std::string& name) {
    return std::find(list.begin(), list.end(), name) != list.end();
  };
  for (const std::string& name : needed)
    if (!has(shapes.given, name))
      throw UsageError(fmt::format("emit: {} needs --{}, expected {}", shapes.op, name, dashed(needed)));
  for (const std::string& name : shapes.given)
    if (!has(needed, name) && !has(allowed, name))
      throw UsageError(fmt::format("emit: {} has no use for --{}, expected {} and optionally {}", shapes.op, name,
                                   dashed(needed), dashed(allowed)));
}

DType dtype_option(const char* option, const std::string& text) {
  const auto dtype = dtype_from_string(text);
  if (!dtype)
    throw UsageError(fmt::format("emit: --{} is {}, expected one such as float32, f64, bfloat16, int8", option, text));
  return *dtype;
}

// The number of elements that the slice takes along an axis of `extent`: the rules of ONNX's Slice.
int64_t slice_count(int64_t start, int64_t end, int64_t step, int64_t extent) {
  if (step == 0) throw UsageError("emit: --steps has a 0, expected any other integers");
  if (extent == 0) return 0;
  if (end == std::numeric_limits<int32_t>::max()) end = std::numeric_limits<int64_t>::max();
  if (start < 0) start += extent;
  if (end < 0 && end >= -extent) end += extent;
  start = std::clamp<int64_t>(start, 0, step > 0 ? extent : extent - 1);
  end =
      end == std::numeric_limits<int64_t>::max() && step < 0 ? -1 : std::clamp<int64_t>(end, step > 0 ? 0 : -1, extent);
  const int64_t span = step > 0 ? end - start : start - end;
  const uint64_t stride = step > 0 ? static_cast<uint64_t>(step) : -static_cast<uint64_t>(step);  // up to 2^63
  return span <= 0 ? 0 : static_cast<int64_t>((static_cast<uint64_t>(span) - 1) / stride) + 1;
}

void slice_inputs(const EmitShapes& shapes, const std::vector<int64_t>& shape, DType dtype,
                  std::vector<Tensor>& inputs) {
  const auto starts = parse_ints("starts", shapes.starts), ends = parse_ints("ends", shapes.ends);
  std::vector<int64_t> axes = parse_ints("axes", shapes.axes), steps = parse_ints("steps", shapes.steps);
  if (axes.empty()) {
    axes.resize(starts.size());
    std::iota(axes.begin(), axes.end(), 0);
  }
  if (steps.empty()) steps.assign(starts.size(), 1);
  if (ends.size() != starts.size() || axes.size() != starts.size() || steps.size() != starts.size())
    throw UsageError(
        fmt::format("emit: --starts has {} values, expected as many in --ends, --axes and --steps", starts.size()));
  Dims dy(shape);
  const auto rank = static_cast<int64_t>(shape.size());
  for (size_t i = 0; i < starts.size(); ++i) {
    const int64_t axis = axes[i] < 0 ? axes[i] + rank : axes[i];
    if (axis < 0 || axis >= rank)
      throw UsageError(fmt::format("emit: --axes has {}, expected {} to {}", axes[i], -rank, rank - 1));
    dy[static_cast<int>(axis)] = slice_count(starts[i], ends[i], steps[i], shape[axis]);
  }
  inputs = {Tensor::empty(dtype, dy), ints(shape), ints(starts), ints(ends), ints(axes), ints(steps)};
}

std::vector<int64_t> parse_dims(const std::string& option, const std::string& text) {
  const std::vector<int64_t> dims = parse_ints(option, text);
  for (const int64_t extent : dims)
    if (extent < 0) throw UsageError(fmt::format("emit: --{} has {}, expected dims from 0", option, extent));
  return dims;
}

// A shape-like input is its values, any other its dtype and dims.
Tensor input_of(const std::string& text, bool values) {
  if (text == "-") return {};
  if (values) return ints(parse_ints("input", text));
  const size_t open = text.find('[');
  if (open == std::string::npos || text.back() != ']')
    throw UsageError(fmt::format("emit: --input is {}, expected a dtype and dims such as f32[64,512], or -", text));
  const std::vector<int64_t> dims = parse_dims("input", text.substr(open + 1, text.size() - open - 2));
  return Tensor::empty(dtype_option("input", text.substr(0, open)), Dims(dims));
}

cases::Case call_of_inputs(const EmitShapes& shapes) {
  if (!shapes.given.empty())
    throw UsageError(fmt::format("emit: got --input and --{}, expected one or the other", shapes.given.front()));
  cases::Case c;
  c.op = c.name = shapes.op;
  try {
    if (!shapes.attributes.empty()) c.attributes = cases::parse_attributes(shapes.attributes);
  } catch (const Error& error) {
    throw UsageError(fmt::format("emit: {}", error.what()));
  }
  const Op* op = find_op(shapes.op);
  for (size_t i = 0; i < shapes.inputs.size(); ++i) {
    const bool values = op && i < op->schema().inputs.size() && op->schema().inputs[i].shape_like;
    c.inputs.push_back(input_of(shapes.inputs[i], values));
  }
  return c;
}

}  // namespace

std::vector<int64_t> parse_ints(const std::string& option, const std::string& text) {
  std::vector<int64_t> values;
  for (size_t at = 0; at < text.size();) {
    const size_t comma = std::min(text.find(',', at), text.size());
    int64_t value = 0;
    const auto [end, code] = std::from_chars(text.data() + at, text.data() + comma, value);
    if (code != std::errc() || end != text.data() + comma || comma + 1 == text.size())
      throw UsageError(fmt::format("emit: --{} is {}, expected integers with commas between them, such as 64,512,768",
                                   option, text));
    values.push_back(value);
    at = comma + 1;
  }
  return values;
}

cases::Case emit_call(const EmitShapes& shapes) {
  if (!shapes.inputs.empty()) return call_of_inputs(shapes);
  check_options(shapes);
  cases::Case c;
  c.op = c.name = shapes.op;
  const auto shape = parse_dims("shape", shapes.shape), indices = parse_dims("indices-shape", shapes.indices_shape),
             to = parse_ints("to-shape", shapes.to_shape);
  const DType dtype = dtype_option("dtype", shapes.dtype),
              index_dtype = dtype_option("indices-dtype", shapes.indices_dtype);
  if (shapes.op == "GatherElementsGrad") {
    c.attributes["axis"] = shapes.axis;
    c.inputs = {Tensor::empty(dtype, Dims(indices)), ints(shape), Tensor::empty(index_dtype, Dims(indices))};
  } else if (shapes.op == "GatherGrad") {
    const auto rank = static_cast<int64_t>(shape.size()), axis = shapes.axis < 0 ? shapes.axis + rank : shapes.axis;
    if (axis < 0 || axis >= rank)
      throw UsageError(fmt::format("emit: --axis is {}, expected {} to {}", shapes.axis, -rank, rank - 1));
    c.attributes["axis"] = shapes.axis;
    Dims dy;
    dy.append({shape.data(), static_cast<size_t>(axis)});
    dy.append(indices);
    dy.append({shape.data() + axis + 1, static_cast<size_t>(rank - axis - 1)});
    c.inputs = {ints(shape), Tensor::empty(index_dtype, Dims(indices)), Tensor::empty(dtype, dy)};
  } else if (shapes.op == "SliceGrad") {
    slice_inputs(shapes, shape, dtype, c.inputs);
  } else if (shapes.op == "BroadcastGrad") {
    c.inputs = {Tensor::empty(dtype, Dims(shape)), ints(to)};
  } else {
    c.inputs = {ints(shape), ints(to)};
  }
  return c;
}

}  // namespace gradloom::cli
