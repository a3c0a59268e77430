#pragma once
// Element types: one table says what they are. f16 and bf16 are storage types: they are loaded, cast, stored and
// compared bit for bit, never computed with.
#include <cstdint>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#pragma GCC visibility push(default)
namespace gradloom {

// Enumerators are stored in disk caches: append new ones at the end.
enum class DType : uint8_t { boolean, i8, u8, i16, u16, i32, u32, i64, u64, f16, bf16, f32, f64 };

struct DTypeInfo {
  enum Kind : uint8_t { boolean, signed_int, unsigned_int, floating };
  DType dtype;
  const char* name;       // of the text form
  const char* onnx_name;  // of the ONNX cases
  Kind kind;
  int bytes;              // of one element; a boolean takes one byte, 0 or 1
  int mantissa_bits = 0;  // of a float: the explicit ones; with its sign and its exponent they fill the bytes
  bool storage = false;   // a float that is not computed with
  constexpr int exponent_bits() const { return 8 * bytes - 1 - mantissa_bits; }
  constexpr int exponent_bias() const { return (1 << (exponent_bits() - 1)) - 1; }
};
inline constexpr DTypeInfo dtype_table[] = {
    {DType::boolean, "bool", "bool", DTypeInfo::boolean, 1},
    {DType::i8, "i8", "int8", DTypeInfo::signed_int, 1},
    {DType::u8, "u8", "uint8", DTypeInfo::unsigned_int, 1},
    {DType::i16, "i16", "int16", DTypeInfo::signed_int, 2},
    {DType::u16, "u16", "uint16", DTypeInfo::unsigned_int, 2},
    {DType::i32, "i32", "int32", DTypeInfo::signed_int, 4},
    {DType::u32, "u32", "uint32", DTypeInfo::unsigned_int, 4},
    {DType::i64, "i64", "int64", DTypeInfo::signed_int, 8},
    {DType::u64, "u64", "uint64", DTypeInfo::unsigned_int, 8},
    {DType::f16, "f16", "float16", DTypeInfo::floating, 2, 10, true},
    {DType::bf16, "bf16", "bfloat16", DTypeInfo::floating, 2, 7, true},
    {DType::f32, "f32", "float32", DTypeInfo::floating, 4, 23},
    {DType::f64, "f64", "float64", DTypeInfo::floating, 8, 52},
};
inline constexpr int dtype_count = std::size(dtype_table);
constexpr const DTypeInfo& info_of(DType t) { return dtype_table[static_cast<size_t>(t)]; }

constexpr int size_of(DType t) { return info_of(t).bytes; }
constexpr const char* to_string(DType t) { return info_of(t).name; }
constexpr const char* onnx_name(DType t) { return info_of(t).onnx_name; }
std::optional<DType> dtype_from_string(std::string_view name);  // either spelling

constexpr bool is_float(DType t) { return info_of(t).kind == DTypeInfo::floating; }
constexpr bool is_storage_float(DType t) { return info_of(t).storage; }
constexpr bool is_signed_int(DType t) { return info_of(t).kind == DTypeInfo::signed_int; }
constexpr bool is_unsigned_int(DType t) { return info_of(t).kind == DTypeInfo::unsigned_int; }
constexpr bool is_int(DType t) { return is_signed_int(t) || is_unsigned_int(t); }
constexpr bool is_arithmetic_float(DType t) { return is_float(t) && !is_storage_float(t); }
// Usable as a number in arithmetic.
constexpr bool is_arithmetic(DType t) { return is_int(t) || is_arithmetic_float(t); }
// The accumulation dtype of `t`: f32 for f16 and bf16, else `t` itself.
constexpr DType accumulator_of(DType t) { return is_storage_float(t) ? DType::f32 : t; }
std::vector<DType> dtypes_where(bool (*is)(DType));  // in the table's order

// The type of an expression: a dtype and a number of vector lanes (1: scalar).
struct Type {
  DType dtype = DType::i64;
  int lanes = 1;
  bool operator==(const Type&) const = default;
  bool scalar() const { return lanes == 1; }
};

std::string to_string(Type type);  // "f32", "f32x16"

}  // namespace gradloom

#pragma GCC visibility pop
