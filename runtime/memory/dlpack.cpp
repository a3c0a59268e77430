#include "gradloom/dlpack.h"

#include <fmt/format.h>

#include "gradloom/error.h"
#include "runtime/memory/borrow_dlpack.h"

namespace gradloom {
namespace {

struct Named {
  DType dtype;
  uint8_t code, bits;
};
constexpr Named dtypes[] = {
    {DType::boolean, kDLBool, 8}, {DType::i8, kDLInt, 8},     {DType::u8, kDLUInt, 8},      {DType::i16, kDLInt, 16},
    {DType::u16, kDLUInt, 16},    {DType::i32, kDLInt, 32},   {DType::u32, kDLUInt, 32},    {DType::i64, kDLInt, 64},
    {DType::u64, kDLUInt, 64},    {DType::f16, kDLFloat, 16}, {DType::bf16, kDLBfloat, 16}, {DType::f32, kDLFloat, 32},
    {DType::f64, kDLFloat, 64},
};

DType dtype_of(DLDataType type) {
  for (const Named& n : dtypes) {
    if (type.lanes == 1 && type.code == n.code && type.bits == n.bits) return n.dtype;
  }
  throw Error(
      ErrorCode::unsupported,
      fmt::format("a DLPack tensor's dtype has code {}, {} bits and {} lanes; supported are bool, (u)int8 to 64, "
                  "float16 to 64 and bfloat16, of one lane",
                  static_cast<int>(type.code), static_cast<int>(type.bits), static_cast<int>(type.lanes)));
}

// An exported tensor: the consumer's view, and the storage it refers to.
struct Exported {
  DLManagedTensor managed{};
  Tensor tensor;
  int64_t shape[max_rank], strides[max_rank];
};

}  // namespace

Tensor borrow_dlpack(const DLTensor& from) {
  const bool cuda = from.device.device_type == kDLCUDA;
  if (from.device.device_type != kDLCPU && from.device.device_type != kDLCUDAHost && !cuda) {
    throw Error(
        ErrorCode::unsupported,
        fmt::format("a DLPack tensor is on device type {}; supported are 1 (CPU), 2 (CUDA) and 3 (pinned host memory)",
                    static_cast<int>(from.device.device_type)));
  }
  if (from.ndim < 0 || from.ndim > max_rank) {
    throw Error(ErrorCode::unsupported,
                fmt::format("a DLPack tensor has rank {}; supported are 0 to {}", from.ndim, max_rank));
  }
  if (from.ndim > 0 && !from.shape)
    throw Error(ErrorCode::invalid_argument,
                fmt::format("a DLPack tensor of rank {} has no shape: it is null", from.ndim));
  const DType dtype = dtype_of(from.dtype);
  Dims dims, strides;
  dims.append({from.shape, static_cast<size_t>(from.ndim)});
  if (from.strides) strides.append({from.strides, static_cast<size_t>(from.ndim)});
  void* data = from.data ? static_cast<char*>(from.data) + from.byte_offset : nullptr;
  return cuda ? Tensor::share_device(nullptr, data, from.device.device_id, dtype, dims, strides)
              : Tensor::borrow(data, dtype, dims, strides);
}

Tensor Tensor::from_dlpack(DLManagedTensor* managed) {
  if (!managed) throw Error(ErrorCode::invalid_argument, "a null DLPack tensor was given");
  Tensor t = borrow_dlpack(managed->dl_tensor);
  // The caller keeps ownership of the memory until nothing can throw any more.
  struct Hold {
    DLManagedTensor* managed = nullptr;
    ~Hold() {
      if (managed && managed->deleter) managed->deleter(managed);
    }
  };
  auto hold = std::make_shared<Hold>();
  hold->managed = managed;
  t.owner_ = std::move(hold);
  return t;
}

DLManagedTensor* Tensor::to_dlpack() const {
  if (!present()) throw Error(ErrorCode::invalid_argument, "an absent tensor cannot be given to DLPack");
  if (!writable())
    throw Error(ErrorCode::unsupported, "a read-only tensor cannot be given to DLPack: its consumer could write to it");
  auto exported = std::make_unique<Exported>();
  exported->tensor = *this;
  std::copy(dims_.begin(), dims_.end(), exported->shape);
  std::copy(strides_.begin(), strides_.end(), exported->strides);
  DLTensor& to = exported->managed.dl_tensor;
  to.data = data_;
  to.device = device_ < 0 ? DLDevice{kDLCPU, 0} : DLDevice{kDLCUDA, device_};
  to.ndim = dims_.size();
  for (const Named& n : dtypes) {
    if (n.dtype == dtype_) to.dtype = {n.code, n.bits, 1};
  }
  to.shape = exported->shape;
  to.strides = exported->strides;
  exported->managed.manager_ctx = exported.get();
  exported->managed.deleter = [](DLManagedTensor* self) { delete static_cast<Exported*>(self->manager_ctx); };
  return &exported.release()->managed;
}

}  // namespace gradloom
