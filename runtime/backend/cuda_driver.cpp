#include "runtime/backend/cuda_driver.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <cstdlib>
#include <type_traits>

#include "gradloom/error.h"
#include "support/lasting.h"

namespace gradloom {

CudaDriver::CudaDriver(const std::string& path) {
  const std::string name = path.empty() ? "libcuda.so.1" : path;
  void* handle = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);  // never closed: it owns threads
  if (!handle) {
    throw Error(ErrorCode::device_error,
                fmt::format("target cuda: the NVIDIA driver's {} is not on this machine{}: {}", name,
                            path.empty() ? "" : " (GRADLOOM_LIBCUDA names it)", dlerror()));
  }
  const auto bind = [&](auto& function, const char* symbol) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(handle, symbol));
    if (!function)
      throw Error(
          ErrorCode::device_error,
          fmt::format("target cuda: {} has no function {}: a driver for CUDA 11.2 or newer is needed", name, symbol));
  };
  int (*initialise)(unsigned) = nullptr;
  bind(initialise, "cuInit");
  bind(error_name_, "cuGetErrorName");
  bind(device_count, "cuDeviceGetCount");
  bind(device_get, "cuDeviceGet");
  bind(device_name, "cuDeviceGetName");
  bind(device_attribute, "cuDeviceGetAttribute");
  bind(context_retain, "cuDevicePrimaryCtxRetain");
  bind(context_release, "cuDevicePrimaryCtxRelease_v2");
  bind(context_push, "cuCtxPushCurrent_v2");
  bind(context_pop, "cuCtxPopCurrent_v2");
  bind(module_load, "cuModuleLoadDataEx");
  bind(module_unload, "cuModuleUnload");
  bind(module_function, "cuModuleGetFunction");
  bind(function_set, "cuFuncSetAttribute");
  bind(launch, "cuLaunchKernel");
  bind(launch_cooperative, "cuLaunchCooperativeKernel");
  bind(resident_blocks, "cuOccupancyMaxActiveBlocksPerMultiprocessor");
  bind(set_words, "cuMemsetD32Async");
  bind(pool_create, "cuMemPoolCreate");
  bind(pool_destroy, "cuMemPoolDestroy");
  bind(pool_set, "cuMemPoolSetAttribute");
  bind(allocate, "cuMemAllocFromPoolAsync");
  bind(free, "cuMemFreeAsync");
  bind(copy, "cuMemcpyAsync");
  bind(host_allocate, "cuMemAllocHost_v2");
  bind(host_free, "cuMemFreeHost");
  bind(synchronize, "cuStreamSynchronize");
  check(initialise(0), "cuInit");
}

const CudaDriver& CudaDriver::get() {
  static constinit Lasting<const CudaDriver> driver;
  return driver.get([] {
    const char* path = std::getenv("GRADLOOM_LIBCUDA");
    return CudaDriver(path ? path : "");
  });
}

void CudaDriver::check(int code, const char* what) const {
  if (code == 0) return;
  const char* name = nullptr;
  if (error_name_(code, &name) != 0 || !name) name = "an unknown error";
  throw Error(code == cu::out_of_memory ? ErrorCode::resource_exhausted : ErrorCode::device_error,
              fmt::format("target cuda: {}: {} ({})", what, name, code));
}

}  // namespace gradloom
