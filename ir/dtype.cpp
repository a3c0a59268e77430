#include "gradloom/dtype.h"

#include <algorithm>

namespace gradloom {

static_assert(std::all_of(std::begin(dtype_table), std::end(dtype_table),
                          [](const DTypeInfo& info) { return &info == &info_of(info.dtype); }));

std::optional<DType> dtype_from_string(std::string_view name) {
  for (const DTypeInfo& info : dtype_table)
    if (name == info.name || name == info.onnx_name) return info.dtype;
  return std::nullopt;
}

std::vector<DType> dtypes_where(bool (*is)(DType)) {
  std::vector<DType> dtypes;
  for (const DTypeInfo& info : dtype_table)
    if (is(info.dtype)) dtypes.push_back(info.dtype);
  return dtypes;
}

std::string to_string(Type type) {
  std::string text = to_string(type.dtype);
  return type.lanes == 1 ? text : text + "x" + std::to_string(type.lanes);
}

}  // namespace gradloom
