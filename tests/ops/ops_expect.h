#pragma once
// Runs an op in every mode (specialised and any-shape, authored and scheduled, fresh and accumulating) and compares
// every bit.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "gradloom/op.h"
#include "tests/ops/ops_harness.h"

namespace gradloom::testing_ops {

inline const Op& op(const char* name) { return *find_op(name); }

inline Tensor ints(const std::vector<int64_t>& values, DType dtype = DType::i64) {
  return Tensor::of(dtype, {static_cast<int64_t>(values.size())}, values);
}

inline std::vector<How> hows(bool accumulate = false) {
  std::vector<How> all;
  for (const bool any_shape : {false, true})
    for (const bool scheduled : {false, true})
      for (const int bytes : {16, 64}) {
        if (!scheduled && bytes != 16) continue;
        How how{.any_shape = any_shape, .scheduled = scheduled, .accumulate = accumulate};
        how.target.vector_bytes = bytes;
        how.target.hardware_scatter = bytes == 64;
        all.push_back(how);
      }
  return all;
}

inline std::string describe(const How& how) {
  return std::string(how.any_shape ? "any shape" : "specialised") +
         (how.scheduled ? ", scheduled " + std::to_string(how.target.vector_bytes) : ", authored") +
         (how.accumulate ? ", accumulate" : "");
}

inline void expect_bits(const Tensor& got, const std::vector<uint64_t>& want, const std::string& what) {
  ASSERT_EQ(got.elements(), static_cast<int64_t>(want.size())) << what;
  for (int64_t i = 0; i < got.elements(); ++i)
    ASSERT_EQ(bits_at(got, i), want[i]) << what << ", element " << i << " of " << to_string(got.dims());
}

// old + value in the accumulator's dtype, rounded once.
inline uint64_t add_bits(DType t, uint64_t a, uint64_t b) {
  const DType sum = accumulator_of(t);
  return ir::eval_cast(sum, t,
                       ir::eval_binary(ir::BinaryOp::add, sum, ir::eval_cast(t, sum, a), ir::eval_cast(t, sum, b)));
}

// Runs in every mode, fresh and accumulating. `want`: sums in the accumulator's dtype (copies: in the dtype itself).
inline void expect_everywhere(const Op& o, const std::vector<Tensor>& inputs, const Attributes& attributes, DType dtype,
                              const Dims& shape, const std::vector<uint64_t>& want, bool accumulate = true) {
  const DType sum = accumulator_of(dtype);
  std::vector<uint64_t> rounded;
  for (const uint64_t w : want) rounded.push_back(ir::eval_cast(sum, dtype, w));
  for (const How& how : hows()) {
    std::vector<Tensor> got;
    ASSERT_NO_THROW(got = run(o, inputs, attributes, how)) << o.schema().name << ", " << describe(how);
    expect_bits(got[0], rounded, o.schema().name + ", " + describe(how) + ", " + onnx_name(dtype));
  }
  if (!accumulate) return;
  for (const How& how : hows(true)) {
    const Tensor before = filled(dtype, shape, 99), target = filled(dtype, shape, 99);
    std::vector<uint64_t> added;
    for (size_t i = 0; i < want.size(); ++i) {
      const uint64_t old = ir::eval_cast(dtype, sum, bits_at(before, i));
      added.push_back(ir::eval_cast(sum, dtype, ir::eval_binary(ir::BinaryOp::add, sum, old, want[i])));
    }
    std::vector<Tensor> got;
    ASSERT_NO_THROW(got = run(o, inputs, attributes, how, {target})) << o.schema().name << ", " << describe(how);
    expect_bits(got[0], added, o.schema().name + ", " + describe(how) + ", " + onnx_name(dtype));
  }
}

// The multi-index of element i.
inline Dims unravel(const Dims& dims, int64_t i) {
  Dims at;
  at.resize(dims.size());
  for (int d = dims.size(); d-- > 0;) {
    at[d] = i % dims[d];
    i /= dims[d];
  }
  return at;
}
inline int64_t ravel(const Dims& dims, const Dims& at) {
  int64_t i = 0;
  for (int d = 0; d < dims.size(); ++d) i = i * dims[d] + at[d];
  return i;
}

}  // namespace gradloom::testing_ops
