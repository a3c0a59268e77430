#pragma once
// A compiled op or nest together with the tensors that it reads and writes: bound once, called in every step.
#include <gradloom/runtime.h>

#include <functional>
#include <string_view>
#include <vector>

namespace train_gru {
using namespace gradloom;

using Call = std::function<void()>;  // throws Error

// An op of the library. Outputs that are absent tensors are not computed.
Call bind(Runtime& runtime, std::string_view op, std::vector<Tensor> inputs, std::vector<Tensor> outputs,
          const Attributes& attributes = {});
// A custom nest; buffers in its parameter order.
Call bind(Runtime& runtime, const ir::Kernel& kernel, std::vector<Tensor> buffers);
// A nest that also takes floating-point scalars of its dtype.
using ScalarCall = std::function<void(const std::vector<double>& scalars)>;
ScalarCall bind(Runtime& runtime, const ir::Kernel& kernel, std::vector<Tensor> buffers, DType scalar);

inline void run(const std::vector<Call>& calls) {
  for (const Call& call : calls) call();
}

}  // namespace train_gru
