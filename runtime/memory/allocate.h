#pragma once
// Allocates dense tensors in recycled memory.
#include "gradloom/tensor.h"
#include "runtime/memory/recycler.h"

namespace gradloom {

// Contents unspecified. The memory is returned to the recycler, which it keeps alive. Throws Error(resource_exhausted).
Tensor allocate_tensor(const std::shared_ptr<Recycler>& recycler, DType dtype, const Dims& dims);

}  // namespace gradloom
