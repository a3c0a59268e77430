#pragma once
// A tensor of one call, without its memory's owner: all that checking and launching the call read. Both interfaces make
// these, from Tensors and from DLPack's structs, without allocating.
#include <span>

#include "gradloom/op.h"
#include "gradloom/tensor.h"

namespace gradloom {

inline constexpr int max_inputs = 16;  // of a call

struct Argument {
  void* data = nullptr;  // of element [0, ..., 0]
  const int64_t* dims = nullptr;
  const int64_t* strides = nullptr;  // in elements; null: dense
  int rank = 0;
  int device = -1;  // -1: host memory
  DType dtype = DType::f32;
  bool present = false;
  bool writable = true;
  int64_t low = 0, high = -1;  // the bytes of its elements, from `data`; high < 0: dims and strides say

  int64_t elements() const {
    int64_t count = 1;
    for (int d = 0; d < rank; ++d) count *= dims[d];
    return count;
  }
};
using Arguments = std::span<const Argument>;
using InputArguments = InlineVector<Argument, max_inputs>;
using OutputArguments = InlineVector<Argument, max_outputs>;

inline Arguments span_of(const InputArguments& list) { return {list.data(), static_cast<size_t>(list.size())}; }
inline Arguments span_of(const OutputArguments& list) { return {list.data(), static_cast<size_t>(list.size())}; }

// Of the tensors of a call, which must outlive it. Throws Error(invalid_argument) for more than max_inputs, or for
// outputs that the op does not have.
InputArguments input_arguments(const OpSchema& schema, std::span<const Tensor> inputs);
OutputArguments output_arguments(const OpSchema& schema, std::span<const Tensor> outputs);

// A loop: a call of memcmp takes longer than a few dims.
inline bool same_numbers(const Dims& known, const int64_t* values) {
  for (int d = 0; d < known.size(); ++d)
    if (known[d] != values[d]) return false;
  return true;
}
inline bool same_dims(const Dims& known, const Argument& a) {
  return known.size() == a.rank && same_numbers(known, a.dims);
}
Dims dims_of(const Argument& argument);
Dims strides_of(const Argument& argument);  // one a dim
// Borrows its memory; throws Error(invalid_argument) for dims, strides or data that no tensor has.
Tensor tensor_of(const Argument& argument);

// The bytes of its elements, [begin, end): both are `data` when there are none, as of an absent one.
struct ByteRange {
  const char *begin, *end;
};
ByteRange bytes_by_dims(const Argument& argument);
inline ByteRange bytes_of(const Argument& a) {
  const char* const data = static_cast<const char*>(a.data);
  return a.high < 0 ? bytes_by_dims(a) : ByteRange{data + a.low, data + a.high};
}
inline bool overlap(const ByteRange& a, const ByteRange& b) {
  return a.begin < a.end && b.begin < b.end && a.begin < b.end && b.begin < a.end;
}

}  // namespace gradloom
