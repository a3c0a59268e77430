#include "gradloom/dims.h"

#include <algorithm>

namespace gradloom {

int64_t element_count(const Dims& dims, int element_bytes) {
  // A dim of 0 counts as 1 for the limit, so that strides of empty tensors fit as well.
  int64_t count = 1, bytes = 0;
  bool empty = false, fits = true;
  for (const int64_t d : dims) {
    if (d < 0)
      throw Error(ErrorCode::invalid_argument,
                  "shape " + to_string(dims) + " has a negative dim; dims must be 0 or more");
    if (d == 0) empty = true;
    fits &= !__builtin_mul_overflow(count, std::max<int64_t>(d, 1), &count);
  }
  if (!fits || __builtin_mul_overflow(count, int64_t{element_bytes}, &bytes))
    throw Error(ErrorCode::invalid_argument, "shape " + to_string(dims) + " of " + std::to_string(element_bytes) +
                                                 "-byte elements needs more than 2^63 - 1 bytes");
  return empty ? 0 : count;
}

Dims dense_strides(const Dims& dims) {
  Dims strides;
  strides.resize(dims.size());
  int64_t stride = 1;
  for (int i = dims.size(); i-- > 0;) {
    strides[i] = stride;
    stride *= std::max<int64_t>(dims[i], 1);
  }
  return strides;
}

bool is_dense(const Dims& dims, const Dims& strides) {
  int64_t stride = 1;
  bool dense = true;
  for (int i = dims.size(); i-- > 0;) {
    if (dims[i] == 0) return true;
    if (dims[i] != 1 && strides[i] != stride) dense = false;
    stride *= dims[i];
  }
  return dense;
}

std::string to_string(const Dims& dims) {
  std::string text = "[";
  for (int i = 0; i < dims.size(); ++i) {
    if (i != 0) text += ',';
    text += std::to_string(dims[i]);
  }
  return text + "]";
}

}  // namespace gradloom
