// Tensors across the C interface: borrowed from the caller, and given to it.
#include "runtime/c_abi/c_abi.h"
#include "runtime/memory/borrow_dlpack.h"

namespace gradloom::c_abi {

Tensor borrow_one(const DLTensor& tensor, const char* function, const char* argument, int32_t position) {
  try {
    return borrow_dlpack(tensor);
  } catch (const Error& error) {
    throw Error(error.code(), fmt::format("{}: {}[{}]: {}", function, argument, position, error.what()));
  }
}

std::vector<Tensor> borrow_all(const DLTensor* const* tensors, int32_t count, const char* function,
                               const char* argument) {
  check_count(tensors, count, function, argument);
  std::vector<Tensor> borrowed(count);
  for (int32_t i = 0; i < count; ++i)
    if (tensors[i]) borrowed[i] = borrow_one(*tensors[i], function, argument, i);
  return borrowed;
}

gradloom_status give_outputs(DLManagedTensor** outputs, int32_t count, const char* function,
                             const std::function<std::vector<Tensor>()>& run) noexcept {
  if (outputs) std::fill_n(outputs, std::max(count, 0), nullptr);
  const gradloom_status status = entry([&] {
    check_count(outputs, count, function, "outputs");
    const std::vector<Tensor> results = run();
    for (int32_t o = 0; o < count && o < static_cast<int32_t>(results.size()); ++o)
      if (results[o].present()) outputs[o] = results[o].to_dlpack();
  });
  if (status != GRADLOOM_OK && outputs) {
    for (int32_t o = 0; o < count; ++o) {
      if (outputs[o]) outputs[o]->deleter(outputs[o]);
      outputs[o] = nullptr;
    }
  }
  return status;
}

namespace {

// The same tensor in the other struct, whose deleter calls the given one's.
template <class To, class From>
To* rewrapped(From* from) {
  To* const to = new To{};
  to->dl_tensor = from->dl_tensor;
  to->manager_ctx = from;
  to->deleter = [](To* self) {
    From* const given = static_cast<From*>(self->manager_ctx);
    if (given->deleter) given->deleter(given);
    delete self;
  };
  return to;
}

}  // namespace
}  // namespace gradloom::c_abi

using namespace gradloom;
using namespace gradloom::c_abi;

gradloom_status gradloom_to_versioned(DLManagedTensor* tensor, DLManagedTensorVersioned** versioned) {
  const char* const name = __func__;
  if (versioned) *versioned = nullptr;
  return entry([&] {
    require(tensor, name, "tensor");
    require(versioned, name, "versioned");
    *versioned = rewrapped<DLManagedTensorVersioned>(tensor);
    (*versioned)->version = {DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION};
  });
}

gradloom_status gradloom_from_versioned(DLManagedTensorVersioned* versioned, int32_t writes, DLManagedTensor** tensor) {
  const char* const name = __func__;
  if (tensor) *tensor = nullptr;
  return entry([&] {
    require(versioned, name, "versioned");
    require(tensor, name, "tensor");
    if (versioned->version.major != DLPACK_MAJOR_VERSION)
      throw Error(ErrorCode::unsupported,
                  fmt::format("{}: versioned is of DLPack {}.{}; supported is {}.x", name, versioned->version.major,
                              versioned->version.minor, DLPACK_MAJOR_VERSION));
    if (writes && (versioned->flags & DLPACK_FLAG_BITMASK_READ_ONLY) != 0)
      throw Error(ErrorCode::invalid_argument, fmt::format("{}: versioned is read-only; it must be writable", name));
    *tensor = rewrapped<DLManagedTensor>(versioned);
  });
}
