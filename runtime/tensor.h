#pragma once
// Tensors as the runtime takes and gives them: a dtype, dims, strides and memory that is owned, shared or borrowed. DLPack in and out.
#include <cstdint>
#include <memory>

#include "ir/dtype.h"
#include "ops/dims.h"

struct DLManagedTensor;  // runtime/dlpack.h

namespace gradloom {

class Tensor {
 public:
  Tensor() = default;  // absent: an optional input that is not given, an output that is not asked for

  // Fresh memory from the recycling allocator, 64-byte aligned, contents unspecified. Throws Error(resource_exhausted).
  static Tensor empty(DType dtype, const Dims& dims);
  // The caller's memory, which must outlive the tensor. Strides in elements (empty: dense row-major; 0 and negative allowed); any address.
  static Tensor borrow(void* data, DType dtype, const Dims& dims, const Dims& strides = {});
  static Tensor borrow(const void* data, DType dtype, const Dims& dims, const Dims& strides = {});
  // A dense copy of the values.
  template <class T>
  static Tensor of(DType dtype, const Dims& dims, const std::vector<T>& values);

  // Takes over a DLPack tensor (its deleter is called when the last copy goes). Throws Error(unsupported) for a device or dtype that is not ours.
  static Tensor from_dlpack(DLManagedTensor* managed);
  DLManagedTensor* to_dlpack() const;  // keeps the memory alive until its deleter is called

  bool present() const { return data_ != nullptr || present_; }
  DType dtype() const { return dtype_; }
  const Dims& dims() const { return dims_; }
  const Dims& strides() const { return strides_; }
  void* data() const { return data_; }  // of element [0, ..., 0]
  bool writable() const { return writable_; }
  int64_t elements() const;
  bool dense() const { return dense_; }

 private:
  void* data_ = nullptr;
  bool present_ = false;
  bool writable_ = true;
  bool dense_ = true;
  DType dtype_ = DType::f32;
  Dims dims_, strides_;
  std::shared_ptr<void> owner_;
};

}  // namespace gradloom
