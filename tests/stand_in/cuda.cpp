// A CUDA driver for machines without one: device memory is host memory, kernels run synchronously on the host executor,
// and all requests are recorded.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "codegen/cuda_host/host_executor.h"
#include "gradloom/error.h"

namespace {

using gradloom::codegen::CudaFunction;
using gradloom::codegen::CudaModule;
using gradloom::codegen::HostModule;

enum { invalid_value = 1, out_of_memory = 2, invalid_context = 201, not_found = 500, launch_failed = 719 };

struct Function {
  CudaFunction function;
  std::shared_ptr<const HostModule> module;
  int most_shared_bytes = 48 << 10;
};
struct Module {
  std::map<std::string, Function> functions;
};

std::mutex mutex;
std::string log_text, log_copy;
std::map<unsigned long long, size_t> allocated;
size_t limit = size_t{1} << 30, in_use = 0;
thread_local int contexts = 0;

void note(const std::string& event) {
  std::lock_guard lock(mutex);
  log_text += event + "\n";
}
std::string name_of(void* stream) { return "stream " + std::to_string(reinterpret_cast<uintptr_t>(stream)); }

// The functions of a module's text, which follows the device prelude.
CudaModule module_of(const std::string& image) {
  CudaModule module;
  module.text = image.substr(std::min(image.find("// kernel "), image.size()));
  constexpr std::string_view mark = "GL_KERNEL(";
  for (size_t at = module.text.find(mark); at != std::string::npos; at = module.text.find(mark, at + 1)) {
    CudaFunction f;
    f.threads = std::atoi(module.text.c_str() + at + mark.size());
    const size_t name = module.text.find(") ", at) + 2, open = module.text.find('(', name),
                 close = module.text.find(')', open);
    f.name = module.text.substr(name, open - name);
    const auto begin = module.text.begin();
    f.arguments.resize(close == open + 1 ? 0
                                         : static_cast<size_t>(std::count(begin + static_cast<long>(open),
                                                                          begin + static_cast<long>(close), ',')) +
                                               1);
    module.functions.push_back(std::move(f));
  }
  return module;
}

}  // namespace

extern "C" {
// For the tests.
const char* stand_in_log() {
  std::lock_guard lock(mutex);
  log_copy = std::move(log_text);
  log_text.clear();
  return log_copy.c_str();
}
void stand_in_limit(size_t bytes) { limit = bytes; }
size_t stand_in_in_use() { return in_use; }

int cuInit(unsigned) { return 0; }
int cuGetErrorName(int code, const char** name) {
  *name = code == invalid_value     ? "CUDA_ERROR_INVALID_VALUE"
          : code == out_of_memory   ? "CUDA_ERROR_OUT_OF_MEMORY"
          : code == invalid_context ? "CUDA_ERROR_INVALID_CONTEXT"
          : code == not_found       ? "CUDA_ERROR_NOT_FOUND"
                                    : "CUDA_ERROR_LAUNCH_FAILED";
  return 0;
}
int cuDeviceGetCount(int* count) { return *count = 1, 0; }
int cuDeviceGet(int* device, int ordinal) { return *device = ordinal, 0; }
int cuDeviceGetName(char* name, int bytes, int) {
  return std::strncpy(name, "Stand-in", static_cast<size_t>(bytes)), 0;
}
int cuDeviceGetAttribute(int* value, int attribute, int) {
  const char* const other = std::getenv("STAND_IN_MAJOR");
  *value = attribute == 16   ? 132
           : attribute == 75 ? (other ? std::atoi(other) : 9)
           : attribute == 76 ? 0
           : attribute == 97 ? 227 << 10
                             : 1;
  return 0;
}
int cuDevicePrimaryCtxRetain(void** context, int) { return *context = &mutex, 0; }
int cuDevicePrimaryCtxRelease_v2(int) { return 0; }
int cuCtxPushCurrent_v2(void*) { return ++contexts, 0; }
int cuCtxPopCurrent_v2(void** context) { return *context = &mutex, --contexts, 0; }

int cuModuleLoadDataEx(void** module, const void* image, unsigned, int*, void**) {
  if (contexts == 0) return invalid_context;
  note("load");
  try {
    const CudaModule parsed = module_of(static_cast<const char*>(image));
    const auto loaded = HostModule::compile(parsed);
    auto made = std::make_unique<Module>();
    for (const CudaFunction& f : parsed.functions) made->functions[f.name] = {f, loaded};
    *module = made.release();
    return 0;
  } catch (const gradloom::Error& error) {
    note(error.what());
    return invalid_value;
  }
}
int cuModuleUnload(void* module) { return delete static_cast<Module*>(module), 0; }
int cuModuleGetFunction(void** function, void* module, const char* name) {
  auto& functions = static_cast<Module*>(module)->functions;
  const auto found = functions.find(name);
  if (found == functions.end()) return not_found;
  return *function = &found->second, 0;
}
int cuFuncSetAttribute(void* function, int attribute, int value) {
  if (attribute != 8 || value > 227 << 10) return invalid_value;
  return static_cast<Function*>(function)->most_shared_bytes = value, 0;
}
int cuLaunchKernel(void* function, unsigned x, unsigned y, unsigned z, unsigned threads, unsigned threads_y,
                   unsigned threads_z, unsigned shared, void* stream, void** arguments, void** extra) {
  if (contexts == 0) return invalid_context;
  Function& f = *static_cast<Function*>(function);
  if (x == 0 || y != 1 || z != 1 || threads != static_cast<unsigned>(f.function.threads) || threads_y != 1 ||
      threads_z != 1 || extra || shared > static_cast<unsigned>(f.most_shared_bytes)) {
    return invalid_value;
  }
  note("launch " + f.function.name + " " + name_of(stream));
  f.function.shared_bytes = shared;
  try {
    f.module->launch(f.function, x, {arguments, f.function.arguments.size()});
    return 0;
  } catch (const gradloom::Error& error) {
    note(error.what());
    return launch_failed;
  }
}
int cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, void*, int, size_t) { return *blocks = 1, 0; }
int cuLaunchCooperativeKernel(void* function, unsigned x, unsigned y, unsigned z, unsigned threads, unsigned threads_y,
                              unsigned threads_z, unsigned shared, void* stream, void** arguments) {
  if (x > 132) return invalid_value;
  note("cooperative " + std::to_string(x));
  static_cast<Function*>(function)->function.cooperative = 1;
  return cuLaunchKernel(function, x, y, z, threads, threads_y, threads_z, shared, stream, arguments, nullptr);
}
int cuMemsetD32Async(unsigned long long data, unsigned value, size_t words, void* stream) {
  if (contexts == 0) return invalid_context;
  std::fill_n(reinterpret_cast<unsigned*>(data), words, value);
  note("set " + name_of(stream));
  return 0;
}
int cuMemPoolCreate(void** pool, const void*) { return *pool = &allocated, 0; }
int cuMemPoolDestroy(void*) { return 0; }
int cuMemPoolSetAttribute(void*, int, void*) { return 0; }
int cuMemAllocFromPoolAsync(unsigned long long* data, size_t bytes, void*, void* stream) {
  if (contexts == 0) return invalid_context;
  if (bytes == 0) return invalid_value;
  std::lock_guard lock(mutex);
  if (bytes > limit || in_use > limit - bytes) return out_of_memory;
  void* memory = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  std::memset(memory, 0xff, bytes);
  *data = reinterpret_cast<uintptr_t>(memory);
  allocated[*data] = bytes;
  in_use += bytes;
  log_text += "allocate " + name_of(stream) + "\n";
  return 0;
}
int cuMemFreeAsync(unsigned long long data, void* stream) {
  std::lock_guard lock(mutex);
  const auto found = allocated.find(data);
  if (found == allocated.end()) return invalid_value;
  in_use -= found->second;
  allocated.erase(found);
  std::free(reinterpret_cast<void*>(data));
  log_text += "free " + name_of(stream) + "\n";
  return 0;
}
int cuMemcpyAsync(unsigned long long to, unsigned long long from, size_t bytes, void* stream) {
  std::memcpy(reinterpret_cast<void*>(to), reinterpret_cast<void*>(from), bytes);
  note("copy " + name_of(stream));
  return 0;
}
int cuMemAllocHost_v2(void** data, size_t bytes) { return *data = std::malloc(bytes), 0; }
int cuMemFreeHost(void* data) { return std::free(data), 0; }
int cuStreamSynchronize(void* stream) { return note("synchronize " + name_of(stream)), 0; }
}
