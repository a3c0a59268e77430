#pragma once
#include "gradloom/dlpack.h"
#include "gradloom/tensor.h"

namespace gradloom {

// The tensor's memory, which must outlive the result. Throws Error(unsupported) for a device, a dtype or a rank that is
// not ours.
Tensor borrow_dlpack(const DLTensor& from);

}  // namespace gradloom
