#pragma once
#include <optional>

#include "gradloom/dlpack.h"
#include "gradloom/tensor.h"

namespace gradloom {

// The tensor's memory, which must outlive the result. Throws Error(unsupported) for an unsupported device, dtype or
// rank.
Tensor borrow_dlpack(const DLTensor& from);
std::optional<DType> dtype_of(DLDataType type);  // none for one that is not supported
DLDataType dlpack_dtype(DType dtype);
std::optional<int> device_of(DLDevice device);  // -1: host memory; none for one that is not supported

}  // namespace gradloom
