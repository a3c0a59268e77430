#include "call.h"

#include <bit>

namespace train_gru {

Call bind(Runtime& runtime, std::string_view op, std::vector<Tensor> inputs, std::vector<Tensor> outputs,
          const Attributes& attributes) {
  RunOptions options{.outputs_wanted = 0};
  for (size_t o = 0; o < outputs.size(); ++o)
    if (outputs[o].present()) options.outputs_wanted |= 1u << o;
  const Executable handle = runtime.compile(op, inputs, attributes, options).value();
  return [handle, inputs = std::move(inputs), outputs = std::move(outputs)] { handle(inputs, outputs).value(); };
}

Call bind(Runtime& runtime, const ir::Kernel& kernel, std::vector<Tensor> buffers) {
  const KernelExecutable handle = runtime.compile(kernel).value();
  return [handle, buffers = std::move(buffers)] { handle(buffers).value(); };
}

ScalarCall bind(Runtime& runtime, const ir::Kernel& kernel, std::vector<Tensor> buffers, DType scalar) {
  const KernelExecutable handle = runtime.compile(kernel).value();
  return [handle, buffers = std::move(buffers), scalar](const std::vector<double>& scalars) {
    std::vector<int64_t> slots;  // the bits of each, in a slot of 64
    for (const double value : scalars)
      slots.push_back(scalar == DType::f64 ? std::bit_cast<int64_t>(value)
                                           : std::bit_cast<int32_t>(static_cast<float>(value)));
    handle(buffers, slots).value();
  };
}

}  // namespace train_gru
