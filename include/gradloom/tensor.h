#pragma once
// Tensors as the runtime takes and gives them: a dtype, dims, strides and memory that is owned, shared or borrowed.
// DLPack in and out.
#include <cstdint>
#include <memory>
#include <type_traits>
#include <vector>

#include "gradloom/dims.h"
#include "gradloom/dtype.h"

struct DLManagedTensor;
struct DLManagedTensorVersioned;

#pragma GCC visibility push(default)
namespace gradloom {

class Tensor {
 public:
  Tensor() = default;  // absent: an optional input that is not given, an output that is not requested

  // Fresh memory from the recycling allocator, 64-byte aligned, contents unspecified. Throws Error(resource_exhausted).
  static Tensor empty(DType dtype, const Dims& dims);
  // The caller's memory, which must outlive the tensor. Strides in elements (empty: dense row-major; 0 and negative
  // allowed); any address:
  static Tensor borrow(void* data, DType dtype, const Dims& dims, const Dims& strides = {});
  static Tensor borrow(const void* data, DType dtype, const Dims& dims, const Dims& strides = {});
  // Memory kept alive by `owner`; otherwise like borrow.
  static Tensor share(std::shared_ptr<void> owner, void* data, DType dtype, const Dims& dims, const Dims& strides = {},
                      bool writable = true);
  // A dense copy of the values, each converted as the IR's Cast converts. Throws Error(invalid_argument) unless there
  // is one for each element.
  template <class T>
  requires std::is_arithmetic_v<T>
  static Tensor of(DType dtype, const Dims& dims, const std::vector<T>& values);

  // The same with memory of a CUDA device (0 or more), which this library does not access from the host.
  static Tensor share_device(std::shared_ptr<void> owner, void* data, int device, DType dtype, const Dims& dims,
                             const Dims& strides = {}, bool writable = true);

  // Takes ownership of a DLPack tensor (its deleter is called when the last copy is destroyed). Throws
  // Error(unsupported) for a device or dtype that is not supported; the caller then still owns it.
  static Tensor from_dlpack(DLManagedTensor* managed);
  // The same of DLPack 1.x, whose read-only flag makes a read-only tensor. Another major version is
  // Error(unsupported).
  static Tensor from_dlpack(DLManagedTensorVersioned* managed);
  // Keeps the memory alive until its deleter is called. Throws Error(unsupported) for a read-only tensor: these structs
  // cannot express that.
  DLManagedTensor* to_dlpack() const;
  DLManagedTensorVersioned* to_dlpack_versioned() const;  // with the read-only flag where it is

  bool present() const { return data_ != nullptr || present_; }
  DType dtype() const { return dtype_; }
  const Dims& dims() const { return dims_; }
  const Dims& strides() const { return strides_; }
  void* data() const { return data_; }  // of element [0, ..., 0]
  bool writable() const { return writable_; }
  int device() const { return device_; }  // -1: host memory; else the CUDA device whose memory it is
  int64_t elements() const { return elements_; }
  bool dense() const { return dense_; }  // row-major, without gaps
  // The byte range of its elements: from the first to one past the last; both are data() when there are no elements:
  const char* begin_byte() const { return static_cast<const char*>(data_) + low_; }
  const char* end_byte() const { return static_cast<const char*>(data_) + high_; }
  // Views share the memory and keep its owner alive; a read-only tensor's are read-only. Both throw
  // Error(invalid_argument). The indices begin to end - 1 of an axis; a negative axis counts from the end. 0 <= begin
  // <= end <= dims()[axis].
  Tensor slice(int axis, int64_t begin, int64_t end) const;
  // Any dims and strides (empty: dense row-major), `offset` elements after data(). No element may lie outside
  // begin_byte() to end_byte().
  Tensor view(const Dims& dims, const Dims& strides = {}, int64_t offset = 0) const;
  // The same memory seen as fewer elements, dense. Requires a dense tensor of at least as many.
  Tensor trimmed(const Dims& dims) const;

 private:
  static Tensor make(void* data, DType dtype, const Dims& dims, const Dims& strides, bool writable);
  static Tensor converted(DType dtype, const Dims& dims, DType from, const void* values, size_t count);

  void* data_ = nullptr;
  bool present_ = false;
  bool writable_ = true;
  bool dense_ = true;
  int device_ = -1;
  DType dtype_ = DType::f32;
  Dims dims_, strides_;
  int64_t elements_ = 0;
  int64_t low_ = 0, high_ = 0;  // bytes from data_
  std::shared_ptr<void> owner_;
};

template <class T>
requires std::is_arithmetic_v<T> Tensor Tensor::of(DType dtype, const Dims& dims, const std::vector<T>& values) {
  if constexpr (std::is_same_v<T, bool>) {
    const std::vector<uint8_t> bytes(values.begin(), values.end());
    return converted(dtype, dims, DType::boolean, bytes.data(), bytes.size());
  } else if constexpr (std::is_same_v<T, float>) {
    return converted(dtype, dims, DType::f32, values.data(), values.size());
  } else if constexpr (std::is_same_v<T, double>) {
    return converted(dtype, dims, DType::f64, values.data(), values.size());
  } else if constexpr (std::is_floating_point_v<T>) {
    const std::vector<double> doubles(values.begin(), values.end());
    return converted(dtype, dims, DType::f64, doubles.data(), doubles.size());
  } else {
    constexpr DType by_size[2][4] = {{DType::u8, DType::u16, DType::u32, DType::u64},
                                     {DType::i8, DType::i16, DType::i32, DType::i64}};
    constexpr int width = sizeof(T) == 1 ? 0 : sizeof(T) == 2 ? 1 : sizeof(T) == 4 ? 2 : 3;
    return converted(dtype, dims, by_size[std::is_signed_v<T>][width], values.data(), values.size());
  }
}

}  // namespace gradloom

#pragma GCC visibility pop
