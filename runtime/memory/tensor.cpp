#include "gradloom/tensor.h"

#include <fmt/format.h>

#include <cstring>

#include "gradloom/error.h"
#include "ir/scalar_math.h"
#include "ir/scalar_program.h"
#include "runtime/memory/allocate.h"
#include "support/float_mode.h"

namespace gradloom {
namespace {

// The byte range, relative to element [0, ..., 0], from the first to past the last byte of any element. Throws
// Error(invalid_argument) where it is larger than a kernel's arithmetic may rely on.
std::pair<int64_t, int64_t> byte_extent(const Dims& dims, const Dims& strides, int width) {
  __int128 low = 0, high = 0;
  for (int i = 0; i < dims.size(); ++i) {
    const __int128 reach = static_cast<__int128>(dims[i] - 1) * strides[i] * width;
    (reach < 0 ? low : high) += reach;
    if (high - low > ir::max_buffer_bytes - width) {
      throw Error(ErrorCode::invalid_argument,
                  fmt::format("a tensor with dims {} and strides {} spans more than 2^48 bytes", to_string(dims),
                              to_string(strides)));
    }
  }
  return {static_cast<int64_t>(low), static_cast<int64_t>(high + width)};
}

}  // namespace

Tensor Tensor::make(void* data, DType dtype, const Dims& dims, const Dims& strides, bool writable) {
  for (int64_t d : dims) {
    if (d < 0)
      throw Error(ErrorCode::invalid_argument,
                  fmt::format("a tensor's dims are {}: none may be negative", to_string(dims)));
  }
  if (!strides.empty() && strides.size() != dims.size()) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("a tensor has {} dims and {} strides", dims.size(), strides.size()));
  }
  Tensor t;
  t.data_ = data;
  t.present_ = true;
  t.writable_ = writable;
  t.dtype_ = dtype;
  t.dims_ = dims;
  t.elements_ = element_count(dims, size_of(dtype));
  if (strides.empty()) {
    t.strides_ = dense_strides(dims);
  } else {
    t.strides_ = strides;
    t.dense_ = is_dense(dims, strides);
  }
  if (t.elements_ > 0) std::tie(t.low_, t.high_) = byte_extent(dims, t.strides_, size_of(dtype));
  if (t.elements_ > 0 && data == nullptr) {
    throw Error(ErrorCode::invalid_argument, fmt::format("a tensor of {} elements has no data", t.elements_));
  }
  return t;
}

Tensor Tensor::empty(DType dtype, const Dims& dims) { return allocate_tensor(Recycler::process_wide(), dtype, dims); }

Tensor Tensor::borrow(void* data, DType dtype, const Dims& dims, const Dims& strides) {
  return make(data, dtype, dims, strides, true);
}

Tensor Tensor::borrow(const void* data, DType dtype, const Dims& dims, const Dims& strides) {
  return make(const_cast<void*>(data), dtype, dims, strides, false);
}

Tensor Tensor::share(std::shared_ptr<void> owner, void* data, DType dtype, const Dims& dims, const Dims& strides,
                     bool writable) {
  Tensor t = make(data, dtype, dims, strides, writable);
  t.owner_ = std::move(owner);
  return t;
}

Tensor Tensor::view(const Dims& dims, const Dims& strides, int64_t offset) const {
  if (!present()) throw Error(ErrorCode::invalid_argument, "an absent tensor has no views");
  Tensor t = make(data_, dtype_, dims, strides, writable_);
  t.owner_ = owner_;
  t.device_ = device_;
  if (t.elements_ == 0) return t;
  const __int128 shift = static_cast<__int128>(offset) * size_of(dtype_);
  if (t.low_ + shift < low_ || t.high_ + shift > high_) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("a view with dims {}, strides {} and offset {} leaves the memory of a tensor with dims {} "
                            "and strides {}; its elements must lie within",
                            to_string(dims), to_string(t.strides_), offset, to_string(dims_), to_string(strides_)));
  }
  t.data_ = static_cast<char*>(data_) + static_cast<int64_t>(shift);
  return t;
}

Tensor Tensor::slice(int axis, int64_t begin, int64_t end) const {
  const int rank = dims_.size(), a = axis < 0 ? axis + rank : axis;
  if (a < 0 || a >= rank)
    throw Error(ErrorCode::invalid_argument, fmt::format("axis {} of a tensor with dims {}; it must be in [{}, {}]",
                                                         axis, to_string(dims_), -rank, rank - 1));
  if (begin < 0 || end < begin || end > dims_[a]) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("the slice {} to {} of axis {} of a tensor with dims {}; 0 <= begin <= end <= {} must hold",
                            begin, end, axis, to_string(dims_), dims_[a]));
  }
  Dims dims = dims_;
  dims[a] = end - begin;
  return view(dims, strides_, begin == end || elements_ == 0 ? 0 : begin * strides_[a]);
}

Tensor Tensor::share_device(std::shared_ptr<void> owner, void* data, int device, DType dtype, const Dims& dims,
                            const Dims& strides, bool writable) {
  // A negative number would denote host memory.
  if (device < 0)
    throw Error(ErrorCode::invalid_argument,
                fmt::format("a tensor is in memory of cuda device {}; devices are numbered from 0", device));
  Tensor t = share(std::move(owner), data, dtype, dims, strides, writable);
  t.device_ = device;
  return t;
}

Tensor Tensor::trimmed(const Dims& dims) const {
  Tensor t = make(data_, dtype_, dims, {}, writable_);
  if (!dense_ || t.elements_ > elements_) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("a tensor with dims {} cannot be trimmed to {}", to_string(dims_), to_string(dims)));
  }
  t.owner_ = owner_;
  t.device_ = device_;
  return t;
}

Tensor Tensor::converted(DType dtype, const Dims& dims, DType from, const void* values, size_t count) {
  Tensor t = empty(dtype, dims);
  if (static_cast<uint64_t>(t.elements_) != count) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("{} values were given for dims {}, which need {}", count, to_string(dims), t.elements_));
  }
  FloatMode mode;
  const int width = size_of(dtype), from_width = size_of(from);
  for (size_t i = 0; i < count; ++i) {
    uint64_t bits = 0;
    std::memcpy(&bits, static_cast<const char*>(values) + i * from_width, from_width);
    if (from != dtype) bits = ir::eval_cast(from, dtype, bits);
    std::memcpy(static_cast<char*>(t.data_) + i * width, &bits, width);
  }
  return t;
}

Tensor allocate_tensor(const std::shared_ptr<Recycler>& recycler, DType dtype, const Dims& dims) {
  for (int64_t d : dims) {
    if (d < 0)
      throw Error(ErrorCode::invalid_argument,
                  fmt::format("a tensor's dims are {}: none may be negative", to_string(dims)));
  }
  const int64_t bytes = element_count(dims, size_of(dtype)) * size_of(dtype);
  if (bytes == 0) return Tensor::borrow(static_cast<void*>(nullptr), dtype, dims);
  struct Release {
    std::shared_ptr<Recycler> recycler;
    int64_t bytes;
    void operator()(void* data) const { recycler->release(data, bytes); }
  };
  void* data = recycler->allocate(bytes);
  return Tensor::share(std::shared_ptr<void>(data, Release{recycler, bytes}), data, dtype, dims);
}

}  // namespace gradloom
