#include "runtime/argument.h"

#include <fmt/format.h>

#include <algorithm>

namespace gradloom {
namespace {

Argument argument_of(const Tensor& t) {
  const char* const data = static_cast<const char*>(t.data());
  return {.data = t.data(),
          .dims = t.dims().data(),
          .strides = t.dense() ? nullptr : t.strides().data(),
          .rank = t.dims().size(),
          .device = t.device(),
          .dtype = t.dtype(),
          .present = t.present(),
          .writable = t.writable(),
          .low = data ? t.begin_byte() - data : 0,
          .high = data ? t.end_byte() - data : 0};
}

}  // namespace

InputArguments input_arguments(const OpSchema& schema, std::span<const Tensor> inputs) {
  if (inputs.size() > static_cast<size_t>(max_inputs))
    throw Error(ErrorCode::invalid_argument, fmt::format("{}: {} inputs given, it takes at most {}", schema.name,
                                                         inputs.size(), schema.inputs.size()));
  InputArguments list;
  for (const Tensor& input : inputs) list.push_back(argument_of(input));
  return list;
}

OutputArguments output_arguments(const OpSchema& schema, std::span<const Tensor> outputs) {
  OutputArguments list;
  for (size_t o = 0; o < outputs.size(); ++o) {
    if (o < schema.outputs.size())
      list.push_back(argument_of(outputs[o]));
    else if (outputs[o].present())
      throw Error(ErrorCode::invalid_argument,
                  fmt::format("{}: {} outputs given; it has {}", schema.name, outputs.size(), schema.outputs.size()));
  }
  return list;
}

Dims dims_of(const Argument& a) {
  Dims dims;
  dims.append({a.dims, static_cast<size_t>(a.rank)});
  return dims;
}

Dims strides_of(const Argument& a) {
  if (!a.strides) return dense_strides(dims_of(a));
  Dims strides;
  strides.append({a.strides, static_cast<size_t>(a.rank)});
  return strides;
}

Tensor tensor_of(const Argument& a) {
  if (!a.present) return {};
  const Dims dims = dims_of(a), strides = a.strides ? strides_of(a) : Dims();
  return a.device < 0 ? Tensor::share(nullptr, a.data, a.dtype, dims, strides, a.writable)
                      : Tensor::share_device(nullptr, a.data, a.device, a.dtype, dims, strides, a.writable);
}

ByteRange bytes_by_dims(const Argument& a) {
  const char* const data = static_cast<const char*>(a.data);
  const int64_t width = size_of(a.dtype), elements = a.present ? a.elements() : 0;
  if (elements == 0) return {data, data};
  if (!a.strides) return {data, data + elements * width};
  int64_t low = 0, high = 0;
  for (int d = 0; d < a.rank; ++d) {
    const int64_t reach = (a.dims[d] - 1) * a.strides[d];
    (reach < 0 ? low : high) += reach;
  }
  return {data + low * width, data + (high + 1) * width};
}

}  // namespace gradloom
