// A user's own loop nest, and memory of a device, from C.
#include "runtime/c_abi/c_abi.h"

namespace gradloom::c_abi {
namespace {

using Copy = Result<Tensor> (Runtime::*)(const Tensor& tensor, void* stream);

gradloom_status copy(Copy how, gradloom_runtime* runtime, const DLTensor* tensor, void* stream, DLManagedTensor** to,
                     const char* function) {
  if (to) *to = nullptr;
  return entry([&] {
    require(runtime, function, "runtime");
    require(tensor, function, "tensor");
    require(to, function, "copy");
    const Tensor borrowed = borrow_all(&tensor, 1, function, "tensor")[0];
    *to = ((*runtime->runtime).*how)(borrowed, stream).value().to_dlpack();
  });
}

}  // namespace
}  // namespace gradloom::c_abi

using namespace gradloom;
using namespace gradloom::c_abi;

gradloom_status gradloom_kernel_compile(gradloom_runtime* runtime, const char* nest, const char* trace,
                                        gradloom_kernel** kernel) {
  const char* const name = __func__;
  if (kernel) *kernel = nullptr;
  return entry([&] {
    require(runtime, name, "runtime");
    require(nest, name, "nest");
    require(kernel, name, "kernel");
    *kernel = new gradloom_kernel{runtime->runtime->compile_text(nest, trace ? trace : "").value()};
  });
}

void gradloom_kernel_destroy(gradloom_kernel* kernel) {
  const Entry entered;  // it may release the last reference to the runtime's threads and caches
  delete kernel;
}

gradloom_status gradloom_kernel_call(const gradloom_kernel* kernel, const DLTensor* const* buffers,
                                     int32_t buffer_count, const int64_t* scalars, int32_t scalar_count,
                                     const gradloom_launch_options* launch) {
  const char* const name = __func__;
  return entry([&] {
    require(kernel, name, "kernel");
    check_count(scalars, scalar_count, name, "scalars");
    const std::vector<Tensor> tensors = borrow_all(buffers, buffer_count, name, "buffers");
    kernel->executable(tensors, {scalars, static_cast<size_t>(scalar_count)}, launch_options(launch, name)).value();
  });
}

gradloom_status gradloom_synchronize(gradloom_runtime* runtime, void* stream) {
  const char* const name = __func__;
  return entry([&] {
    require(runtime, name, "runtime");
    runtime->runtime->synchronize(stream).value();
  });
}

gradloom_status gradloom_to_device(gradloom_runtime* runtime, const DLTensor* tensor, void* stream,
                                   DLManagedTensor** to) {
  return copy(&Runtime::to_device, runtime, tensor, stream, to, __func__);
}

gradloom_status gradloom_to_host(gradloom_runtime* runtime, const DLTensor* tensor, void* stream,
                                 DLManagedTensor** to) {
  return copy(&Runtime::to_host, runtime, tensor, stream, to, __func__);
}
