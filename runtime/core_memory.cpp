// Where tensors are stored, and copies between host and device memory.
#include <fmt/format.h>

#include "runtime/core.h"
#include "runtime/memory/allocate.h"

namespace gradloom {

int Core::device_for(const OpSchema& schema) const { return schema.on_host ? -1 : device(); }

Tensor Core::allocate(int device, DType dtype, const Dims& dims, const LaunchOptions& launch) const {
  if (device < 0) return allocate_tensor(recycler_, dtype, dims);
  const int64_t bytes = element_count(dims, size_of(dtype)) * size_of(dtype);
  if (bytes == 0) return Tensor::share_device(nullptr, nullptr, device, dtype, dims);
  std::shared_ptr<void> memory = backend_->allocate(bytes, launch.stream);
  void* const data = memory.get();
  return Tensor::share_device(std::move(memory), data, device, dtype, dims);
}

Tensor Core::copy_to(int device, const Tensor& tensor, void* stream) const {
  if (!tensor.present() || tensor.device() == device) return tensor;
  if (this->device() < 0)
    throw Error(ErrorCode::invalid_argument,
                fmt::format("a tensor is in memory of cuda device {}; target {} reads host memory only",
                            tensor.device(), target_name()));
  const int64_t bytes = tensor.end_byte() - tensor.begin_byte();
  const int64_t offset = static_cast<const char*>(tensor.data()) - tensor.begin_byte();
  const auto held = [&](std::shared_ptr<void> memory, void* data) {
    return device < 0
               ? Tensor::share(std::move(memory), data, tensor.dtype(), tensor.dims(), tensor.strides())
               : Tensor::share_device(std::move(memory), data, device, tensor.dtype(), tensor.dims(), tensor.strides());
  };
  if (bytes == 0) return held(nullptr, nullptr);
  std::shared_ptr<void> memory;
  if (device >= 0) {
    memory = backend_->allocate(bytes, stream);
  } else {
    memory = std::shared_ptr<void>(recycler_->allocate(bytes),
                                   [recycler = recycler_, bytes](void* data) { recycler->release(data, bytes); });
  }
  backend_->copy(memory.get(), tensor.begin_byte(), bytes, stream);
  void* const data = static_cast<char*>(memory.get()) + offset;
  return held(std::move(memory), data);
}

void Core::synchronize(void* stream) const { backend_->synchronize(stream); }

}  // namespace gradloom
