#pragma once
// A call of an op, and random tensors for it.
#include <cstring>
#include <random>

#include "gradloom/runtime.h"
#include "ir/scalar_math.h"

namespace gradloom::testing_ops {

struct Call {
  std::string name, op;
  std::vector<Tensor> inputs;
  Attributes attributes;
  bool accumulate = false;
  bool whole_numbers = false;  // the accumulated-into values are integral: sums with them are exact in any order
};

class Random {
 public:
  explicit Random(uint64_t seed) : engine_(seed) {}
  Tensor values(DType dtype, const Dims& dims) {
    Tensor t = Tensor::empty(dtype, dims);
    std::normal_distribution<double> normal;
    for (int64_t i = 0; i < t.elements(); ++i) {
      const uint64_t bits = is_float(dtype) ? ir::bits_from_double(dtype, normal(engine_))
                                            : ir::bits_from_int(dtype, static_cast<int64_t>(engine_()));
      std::memcpy(static_cast<char*>(t.data()) + i * size_of(dtype), &bits, size_of(dtype));
    }
    return t;
  }
  Tensor indices(DType dtype, const Dims& dims, int64_t extent) {
    Tensor t = Tensor::empty(dtype, dims);
    std::uniform_int_distribution<int64_t> pick(-extent, extent - 1);
    for (int64_t i = 0; i < t.elements(); ++i) {
      const int64_t value = pick(engine_);
      std::memcpy(static_cast<char*>(t.data()) + i * size_of(dtype), &value, size_of(dtype));
    }
    return t;
  }

 private:
  std::mt19937_64 engine_;
};

inline Tensor ints(const std::vector<int64_t>& values) {
  return Tensor::of(DType::i64, {static_cast<int64_t>(values.size())}, values);
}
inline Tensor shape_tensor(const Dims& dims) { return ints({dims.begin(), dims.end()}); }

inline const std::vector<DType> floats = dtypes_where(is_float);

}  // namespace gradloom::testing_ops
