#include "ir/dtype.h"

#include <array>

namespace gradloom {
namespace {

struct Row {
  const char* name;
  const char* onnx;
  int bytes;
};
constexpr std::array<Row, dtype_count> rows{{{"bool", "bool", 1},
                                             {"i8", "int8", 1},
                                             {"u8", "uint8", 1},
                                             {"i16", "int16", 2},
                                             {"u16", "uint16", 2},
                                             {"i32", "int32", 4},
                                             {"u32", "uint32", 4},
                                             {"i64", "int64", 8},
                                             {"u64", "uint64", 8},
                                             {"f16", "float16", 2},
                                             {"bf16", "bfloat16", 2},
                                             {"f32", "float32", 4},
                                             {"f64", "float64", 8}}};
const Row& row(DType dtype) { return rows[static_cast<size_t>(dtype)]; }

}  // namespace

int size_of(DType dtype) { return row(dtype).bytes; }
const char* to_string(DType dtype) { return row(dtype).name; }
const char* onnx_name(DType dtype) { return row(dtype).onnx; }

std::optional<DType> dtype_from_string(std::string_view name) {
  for (int i = 0; i < dtype_count; ++i)
    if (name == rows[i].name || name == rows[i].onnx) return static_cast<DType>(i);
  return std::nullopt;
}

std::string to_string(Type type) {
  std::string text = to_string(type.dtype);
  return type.lanes == 1 ? text : text + "x" + std::to_string(type.lanes);
}

}  // namespace gradloom
