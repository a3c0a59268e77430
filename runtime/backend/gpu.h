#pragma once
// What runs GPU kernels for a Runtime: a device through the CUDA driver, or this machine's CPU through the host
// executor.
#include <memory>
#include <string>
#include <string_view>

#include "ir/stmt.h"
#include "ir/target.h"
#include "runtime/options.h"

namespace gradloom {

// A kernel's module, loaded.
class GpuKernel {
 public:
  virtual ~GpuKernel() = default;
  // The smallest bad position, INT64_MAX for none. Throws Error.
  virtual int64_t launch(void* const* buffers, const int64_t* scalars, const LaunchOptions& options) const = 0;
  virtual int64_t code_bytes() const = 0;
};

class Gpu {
 public:
  virtual ~Gpu() = default;
  virtual std::string name() const = 0;  // "cuda-host sm_90"
  virtual const ir::Target& target() const = 0;
  std::string text(const ir::Kernel& lowered) const;  // the kernel's CUDA text
  // Emits, compiles and loads; `ms`: how long the compiler took. `code`: what load_code takes, where kernels are kept
  // on disk.
  virtual std::shared_ptr<const GpuKernel> load(const ir::Kernel& lowered, double& ms, std::string& code) const = 0;
  // The compiler, for keys of the disk cache; empty where kernels are not kept there.
  virtual std::string toolchain() const { return {}; }
  virtual std::shared_ptr<const GpuKernel> load_code(const std::string& name, std::string_view code) const;

  // A device with memory of its own.
  virtual int device() const { return -1; }
  virtual std::shared_ptr<void> allocate(int64_t bytes, void* stream) const;  // throws Error(resource_exhausted)
  virtual void copy(void* to, const void* from, int64_t bytes,
                    void* stream) const;    // either side may be the host's; waits
  virtual void synchronize(void*) const {}  // throws what launches found since the last call
};

bool is_gpu(TargetKind kind);
// Null for a target that is no GPU. Throws Error(unsupported) where this build has none.
std::unique_ptr<Gpu> open_gpu(const RuntimeOptions& options);
std::unique_ptr<Gpu> open_cuda(const RuntimeOptions& options);  // cuda_gpu.cpp

// The description that kernels for the host executor are scheduled for.
ir::Target host_gpu_target();

}  // namespace gradloom
