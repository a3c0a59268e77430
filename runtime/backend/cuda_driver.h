#pragma once
// NVIDIA's driver API, loaded at run time: declares the few functions used, so that a build needs no CUDA toolkit.
#include <cstddef>
#include <cstdint>
#include <string>

namespace gradloom {

using CudaStream = void*;
using CudaModuleHandle = struct CudaDriverModule*;
using CudaFunctionHandle = struct CudaDriverFunction*;
using CudaContext = struct CudaDriverContext*;
using CudaPool = struct CudaDriverPool*;
using CudaPointer = unsigned long long;

// The driver's enumerators (cuda.h).
namespace cu {
enum Attribute {
  multiprocessors = 16,
  major = 75,
  minor = 76,
  shared_bytes_opt_in = 97,
  cooperative = 95,
  pools = 115
};
enum {
  out_of_memory = 2,
  max_dynamic_shared_bytes = 8,
  release_threshold = 4,
  jit_error_log = 5,
  jit_error_log_bytes = 6
};
struct PoolProperties {
  int allocation = 1;  // pinned to the device
  int handles = 0;     // none is exported
  int location = 1;    // a device
  int device = 0;
  void* security = nullptr;
  size_t max_bytes = 0;
  unsigned char reserved[56] = {};
};
static_assert(sizeof(PoolProperties) == 88);
}  // namespace cu

class CudaDriver {
 public:
  // The library that GRADLOOM_LIBCUDA names, else libcuda.so.1; initialised. Throws Error(device_error). Success is
  // cached; a failure is not.
  static const CudaDriver& get();
  explicit CudaDriver(const std::string& path);
  CudaDriver(const CudaDriver&) = delete;
  CudaDriver& operator=(const CudaDriver&) = delete;

  // Throws Error(device_error), or resource_exhausted where memory ran out, unless `code` is 0.
  void check(int code, const char* what) const;

  int (*device_count)(int* count);
  int (*device_get)(int* device, int ordinal);
  int (*device_name)(char* name, int bytes, int device);
  int (*device_attribute)(int* value, int attribute, int device);
  int (*context_retain)(CudaContext* context, int device);
  int (*context_release)(int device);
  int (*context_push)(CudaContext context);
  int (*context_pop)(CudaContext* context);
  int (*module_load)(CudaModuleHandle* module, const void* image, unsigned options, int* names, void** values);
  int (*module_unload)(CudaModuleHandle module);
  int (*module_function)(CudaFunctionHandle* function, CudaModuleHandle module, const char* name);
  int (*function_set)(CudaFunctionHandle function, int attribute, int value);
  int (*launch)(CudaFunctionHandle function, unsigned x, unsigned y, unsigned z, unsigned threads_x, unsigned threads_y,
                unsigned threads_z, unsigned shared_bytes, CudaStream stream, void** arguments, void** extra);
  int (*launch_cooperative)(CudaFunctionHandle function, unsigned x, unsigned y, unsigned z, unsigned threads_x,
                            unsigned threads_y, unsigned threads_z, unsigned shared_bytes, CudaStream stream,
                            void** arguments);
  int (*resident_blocks)(int* blocks, CudaFunctionHandle function, int threads,
                         size_t shared_bytes);  // of a multiprocessor
  int (*set_words)(CudaPointer data, unsigned value, size_t words, CudaStream stream);
  int (*pool_create)(CudaPool* pool, const cu::PoolProperties* properties);
  int (*pool_destroy)(CudaPool pool);
  int (*pool_set)(CudaPool pool, int attribute, void* value);
  int (*allocate)(CudaPointer* data, size_t bytes, CudaPool pool, CudaStream stream);
  int (*free)(CudaPointer data, CudaStream stream);
  int (*copy)(CudaPointer to, CudaPointer from, size_t bytes, CudaStream stream);
  int (*host_allocate)(void** data, size_t bytes);
  int (*host_free)(void* data);
  int (*synchronize)(CudaStream stream);

 private:
  int (*error_name_)(int code, const char** name) = nullptr;
};

}  // namespace gradloom
