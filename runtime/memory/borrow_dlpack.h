#pragma once
#include "runtime/c_abi/dlpack.h"
#include "runtime/memory/tensor.h"

namespace gradloom {

// The tensor's memory, which must outlive the result. Throws Error(unsupported) for a device, a dtype or a rank that is
// not ours.
Tensor borrow_dlpack(const DLTensor& from);

}  // namespace gradloom
