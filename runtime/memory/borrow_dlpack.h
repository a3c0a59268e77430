#pragma once
#include "gradloom/dlpack.h"
#include "gradloom/tensor.h"

namespace gradloom {

// The tensor's memory, which must outlive the result. Throws Error(unsupported) for an unsupported device, dtype or
// rank.
Tensor borrow_dlpack(const DLTensor& from);

}  // namespace gradloom
