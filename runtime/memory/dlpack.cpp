#include "gradloom/dlpack.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "gradloom/error.h"
#include "runtime/memory/borrow_dlpack.h"

namespace gradloom {
namespace {

// By DLPack's code, and by the size of a lane in bytes: 1, 2, 4, 8.
constexpr std::optional<DType> by_code[7][4] = {
    {DType::i8, DType::i16, DType::i32, DType::i64},
    {DType::u8, DType::u16, DType::u32, DType::u64},
    {{}, DType::f16, DType::f32, DType::f64},
    {},
    {{}, DType::bf16, {}, {}},
    {},
    {DType::boolean, {}, {}, {}},
};

// Where the structs of both versions keep their description.
struct Description {
  Tensor tensor;
  int64_t shape[max_rank], strides[max_rank];

  explicit Description(const Tensor& of) : tensor(of) {
    std::copy(of.dims().begin(), of.dims().end(), shape);
    std::copy(of.strides().begin(), of.strides().end(), strides);
  }
  void write(DLTensor& to) {
    to.data = tensor.data();
    to.device = tensor.device() < 0 ? DLDevice{kDLCPU, 0} : DLDevice{kDLCUDA, tensor.device()};
    to.ndim = tensor.dims().size();
    to.dtype = dlpack_dtype(tensor.dtype());
    to.shape = shape;
    to.strides = strides;
  }
};

// An exported tensor: the consumer's struct, and what it refers to.
template <class Managed>
struct Exported {
  Managed managed{};
  Description description;
};

template <class Managed>
Managed* exported(const Tensor& tensor) {
  if (!tensor.present()) throw Error(ErrorCode::invalid_argument, "an absent tensor cannot be given to DLPack");
  auto made = std::unique_ptr<Exported<Managed>>(new Exported<Managed>{.description = Description(tensor)});
  made->description.write(made->managed.dl_tensor);
  made->managed.manager_ctx = made.get();
  made->managed.deleter = [](Managed* self) { delete static_cast<Exported<Managed>*>(self->manager_ctx); };
  return &made.release()->managed;
}

// Calls the producer's deleter.
template <class Managed>
struct Hold {
  Managed* managed = nullptr;
  ~Hold() {
    if (managed && managed->deleter) managed->deleter(managed);
  }
};

// The caller keeps ownership of the memory until nothing can throw any more.
template <class Managed>
Tensor imported(Managed* managed, bool writable) {
  const Tensor borrowed = borrow_dlpack(managed->dl_tensor);
  auto hold = std::make_shared<Hold<Managed>>();
  Tensor t = borrowed.device() < 0
                 ? Tensor::share(hold, borrowed.data(), borrowed.dtype(), borrowed.dims(), borrowed.strides(), writable)
                 : Tensor::share_device(hold, borrowed.data(), borrowed.device(), borrowed.dtype(), borrowed.dims(),
                                        borrowed.strides(), writable);
  hold->managed = managed;
  return t;
}

}  // namespace

std::optional<DType> dtype_of(DLDataType type) {
  if (type.lanes != 1 || type.code > kDLBool || type.bits < 8 || !std::has_single_bit(unsigned{type.bits})) return {};
  const int size = std::countr_zero(unsigned{type.bits}) - 3;
  return size < 4 ? by_code[type.code][size] : std::nullopt;
}

DLDataType dlpack_dtype(DType dtype) {
  for (uint8_t code = 0; code <= kDLBool; ++code)
    for (int size = 0; size < 4; ++size)
      if (by_code[code][size] == dtype) return {code, static_cast<uint8_t>(8 << size), 1};
  throw Error(ErrorCode::internal, fmt::format("DLPack has no dtype {}", to_string(dtype)));
}

std::optional<int> device_of(DLDevice device) {
  if (device.device_type == kDLCPU || device.device_type == kDLCUDAHost) return -1;
  if (device.device_type == kDLCUDA && device.device_id >= 0) return device.device_id;
  return {};
}

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
  const std::optional<DType> dtype = dtype_of(from.dtype);
  if (!dtype)
    throw Error(
        ErrorCode::unsupported,
        fmt::format("a DLPack tensor's dtype has code {}, {} bits and {} lanes; supported are bool, (u)int8 to 64, "
                    "float16 to 64 and bfloat16, of one lane",
                    static_cast<int>(from.dtype.code), static_cast<int>(from.dtype.bits),
                    static_cast<int>(from.dtype.lanes)));
  Dims dims, strides;
  dims.append({from.shape, static_cast<size_t>(from.ndim)});
  if (from.strides) strides.append({from.strides, static_cast<size_t>(from.ndim)});
  void* data = from.data ? static_cast<char*>(from.data) + from.byte_offset : nullptr;
  return cuda ? Tensor::share_device(nullptr, data, from.device.device_id, *dtype, dims, strides)
              : Tensor::borrow(data, *dtype, dims, strides);
}

Tensor Tensor::from_dlpack(DLManagedTensor* managed) {
  if (!managed) throw Error(ErrorCode::invalid_argument, "a null DLPack tensor was given");
  return imported(managed, true);
}

Tensor Tensor::from_dlpack(DLManagedTensorVersioned* managed) {
  if (!managed) throw Error(ErrorCode::invalid_argument, "a null DLPack tensor was given");
  if (managed->version.major != DLPACK_MAJOR_VERSION)
    throw Error(ErrorCode::unsupported,
                fmt::format("a DLPack tensor is of version {}.{}; supported is {}.x", managed->version.major,
                            managed->version.minor, DLPACK_MAJOR_VERSION));
  return imported(managed, (managed->flags & DLPACK_FLAG_BITMASK_READ_ONLY) == 0);
}

DLManagedTensor* Tensor::to_dlpack() const {
  if (present() && !writable())
    throw Error(ErrorCode::unsupported, "a read-only tensor cannot be given to DLPack: its consumer could write to it");
  return exported<DLManagedTensor>(*this);
}

DLManagedTensorVersioned* Tensor::to_dlpack_versioned() const {
  DLManagedTensorVersioned* const managed = exported<DLManagedTensorVersioned>(*this);
  managed->version = {DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION};
  managed->flags = writable() ? 0 : DLPACK_FLAG_BITMASK_READ_ONLY;
  return managed;
}

}  // namespace gradloom
