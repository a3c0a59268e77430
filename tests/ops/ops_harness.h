#pragma once
// Runs an op through the interpreter, from the call to the trimmed outputs, at any stage: shared by the ops' tests.
#include <cstring>
#include <vector>

#include "ir/interpret/interpret.h"
#include "ir/scalar_math.h"
#include "tests/support/named_strategy.h"

namespace gradloom::testing_ops {

struct How {
  bool any_shape = false, scheduled = false, accumulate = false;
  uint32_t wanted = ~0u;
  ir::Target target{.vector_bytes = 32, .l2_bytes = 1 << 10, .threads = 2};
  std::string strategy = "direct";
};

// An owned tensor with writable memory.
inline Tensor filled(DType dtype, const Dims& dims, uint64_t seed) {
  Tensor t = Tensor::empty(dtype, dims);
  char* data = static_cast<char*>(t.data());
  for (int64_t i = 0; i < t.elements(); ++i) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    const double value = static_cast<double>(static_cast<int64_t>(seed >> 40) - (1 << 23)) / 4096.0;
    uint64_t bits = seed >> 33;
    if (is_float(dtype)) bits = ir::bits_from_double(dtype, value);
    if (dtype == DType::boolean) bits &= 1;
    std::memcpy(data + i * size_of(dtype), &bits, size_of(dtype));
  }
  return t;
}

// The same values with other strides: `layout` permutes the axes in memory, negative ones (~axis) run backwards.
struct Strided {
  std::vector<char> memory;
  Tensor tensor;
};

inline uint64_t bits_at(const Tensor& dense, int64_t i) {
  uint64_t bits = 0;
  std::memcpy(&bits, static_cast<const char*>(dense.data()) + i * size_of(dense.dtype()), size_of(dense.dtype()));
  return bits;
}
inline void set_bits(const Tensor& dense, int64_t i, uint64_t bits) {
  std::memcpy(static_cast<char*>(dense.data()) + i * size_of(dense.dtype()), &bits, size_of(dense.dtype()));
}

// Element i (row-major) of any tensor.
inline uint64_t strided_bits(const Tensor& t, int64_t i) {
  int64_t offset = 0;
  for (int d = t.dims().size(); d-- > 0;) {
    offset += i % t.dims()[d] * t.strides()[d];
    i /= t.dims()[d];
  }
  uint64_t bits = 0;
  std::memcpy(&bits, static_cast<const char*>(t.data()) + offset * size_of(t.dtype()), size_of(t.dtype()));
  return bits;
}

// The last axis outermost in memory and reversed, with a gap of one element between rows.
inline Strided strided_copy(const Tensor& dense) {
  const Dims& dims = dense.dims();
  Dims strides;
  strides.resize(dims.size());
  int64_t step = 1, offset = 0;
  for (int d = 0; d < dims.size(); ++d) {
    strides[d] = d + 1 == dims.size() ? -step : step;
    if (strides[d] < 0 && dims[d] > 0) offset += (dims[d] - 1) * step;
    step = step * std::max<int64_t>(dims[d], 1) + 1;
  }
  const int size = size_of(dense.dtype());
  Strided s{std::vector<char>(static_cast<size_t>(step + 1) * size), {}};
  s.tensor = Tensor::borrow(static_cast<void*>(s.memory.data() + offset * size), dense.dtype(), dims, strides);
  for (int64_t i = 0; i < dense.elements(); ++i) {
    int64_t at = 0, rest = i;
    for (int d = dims.size(); d-- > 0;) {
      at += rest % dims[d] * strides[d];
      rest /= dims[d];
    }
    std::memcpy(static_cast<char*>(s.tensor.data()) + at * size, static_cast<const char*>(dense.data()) + i * size,
                size);
  }
  return s;
}

// Outputs in the op's order; with accumulate, `outputs` are the initial values. Throws a caller's errors.
inline std::vector<Tensor> run(const Op& op, const std::vector<Tensor>& inputs, const Attributes& attributes = {},
                               const How& how = {}, std::vector<Tensor> outputs = {}) {
  const Operands operands(op.schema(), inputs);
  const Request request = operands.request(attributes, how.wanted, how.accumulate);
  Plan plan = op.check(request);
  const std::string strategy = choose_strategy(op, plan, how.strategy, how.target, how.any_shape).name;
  const BuiltKernel built = how.scheduled
                                ? build_kernel(op, plan, strategy, how.target, how.any_shape, 64, how.accumulate)
                                : author_kernel(op, plan, strategy, how.target, how.any_shape, 64, how.accumulate);
  const ir::Kernel& kernel = how.scheduled ? built.lowered : built.authored;
  outputs.resize(plan.outputs.size());
  std::vector<void*> data, buffers;
  for (int o = 0; o < plan.outputs.size(); ++o) {
    if (!outputs[o].present()) outputs[o] = Tensor::empty(plan.outputs[o].dtype, plan.outputs[o].dims);
    data.push_back(outputs[o].data());
  }
  for (const View& view : plan.views) buffers.push_back(view.output ? data[view.index] : inputs[view.index].data());
  std::vector<int64_t> scalars(built.sources.size());
  fill_scalars(plan, built.sources, scalars.data());
  const ir::Outcome outcome = ir::interpret(kernel, buffers, scalars, {.explicit_barriers = how.scheduled});
  if (!outcome.ok()) {
    throw op.explain(request, plan, outcome.bad_position,
                     [&](int input, int64_t element) { return integer_element(inputs[input], element); });
  }
  for (int o = 0; o < static_cast<int>(op.schema().outputs.size()); ++o)
    if (plan.outputs[o].wanted) plan.outputs[o].dims = op.found_dims(plan, o, data);
  for (int o = 0; o < plan.outputs.size(); ++o)
    if (!(outputs[o].dims() == plan.outputs[o].dims)) outputs[o] = outputs[o].trimmed(plan.outputs[o].dims);
  return outputs;
}

}  // namespace gradloom::testing_ops
