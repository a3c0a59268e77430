#pragma once
// The caller's output tensors: what a kernel may write to.
#include <span>

#include "ops/op.h"
#include "runtime/tensor.h"

namespace gradloom {

uint32_t present_outputs(const OpSchema& schema, std::span<const Tensor> outputs);  // bit o; throws Error(invalid_argument) for surplus tensors

// Every wanted output has the plan's dtype and dims, is dense and writable, and shares no byte with an input or another output. Throws
// Error(invalid_argument) naming both.
void check_outputs(const OpSchema& schema, const Plan& plan, std::span<const Tensor> inputs, std::span<const Tensor> outputs);

bool overlap(const Tensor& a, const Tensor& b);
bool aligned(const Tensor& tensor, int64_t bytes);  // an empty one is

// One pointer a view; the class of the outputs' alignment.
int64_t fill_buffers(const Plan& plan, std::span<const Tensor> inputs, std::span<const Tensor> outputs, void** buffers);

}  // namespace gradloom
