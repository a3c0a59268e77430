#pragma once
#include "gradloom/dtype.h"

namespace gradloom::ir {

// The unsigned integer of a value's size: what holds its bits.
inline DType bits_dtype(DType dtype) {
  const int size = size_of(dtype);
  return size == 1 ? DType::u8 : size == 2 ? DType::u16 : size == 4 ? DType::u32 : DType::u64;
}

}  // namespace gradloom::ir
