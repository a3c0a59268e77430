#pragma once
// Element types. f16 and bf16 are storage types: they are loaded, cast, stored and compared bit for bit, never computed
// with.
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace gradloom {

enum class DType : uint8_t { boolean, i8, u8, i16, u16, i32, u32, i64, u64, f16, bf16, f32, f64 };
inline constexpr int dtype_count = 13;

int size_of(DType dtype);            // bytes of one element; a boolean takes one byte, 0 or 1
const char* to_string(DType dtype);  // "bool", "i8", ..., "bf16": the names of the text form
const char* onnx_name(DType dtype);  // "bool", "int8", ..., "bfloat16": the names of the ONNX cases
std::optional<DType> dtype_from_string(std::string_view name);  // either spelling

inline bool is_float(DType t) { return t >= DType::f16; }
inline bool is_storage_float(DType t) { return t == DType::f16 || t == DType::bf16; }
inline bool is_signed_int(DType t) { return t == DType::i8 || t == DType::i16 || t == DType::i32 || t == DType::i64; }
inline bool is_unsigned_int(DType t) { return t == DType::u8 || t == DType::u16 || t == DType::u32 || t == DType::u64; }
inline bool is_int(DType t) { return is_signed_int(t) || is_unsigned_int(t); }
// The dtype in which sums of `t` are formed: f32 for f16 and bf16, else itself.
inline DType accumulator_of(DType t) { return is_storage_float(t) ? DType::f32 : t; }

// The type of an expression: a dtype and a number of vector lanes (1: scalar).
struct Type {
  DType dtype = DType::i64;
  int lanes = 1;
  bool operator==(const Type&) const = default;
  bool scalar() const { return lanes == 1; }
};

std::string to_string(Type type);  // "f32", "f32x16"

}  // namespace gradloom
