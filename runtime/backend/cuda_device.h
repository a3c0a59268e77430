#pragma once
// One device: its context, a stream-ordered memory pool, and cells in which kernels report bad positions.
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "gradloom/target.h"
#include "runtime/backend/cuda_driver.h"
#include "support/fork.h"

namespace gradloom {

class CudaDevice {
 public:
  // Throws Error(device_error). `keep_bytes`: how much freed memory the pool keeps for reuse.
  CudaDevice(const CudaDriver& driver, int ordinal, int64_t keep_bytes);
  ~CudaDevice();
  CudaDevice(const CudaDevice&) = delete;
  CudaDevice& operator=(const CudaDevice&) = delete;

  const CudaDriver& driver() const { return driver_; }
  int ordinal() const { return ordinal_; }
  const std::string& name() const { return name_; }
  int architecture() const { return architecture_; }  // 90 for compute capability 9.0
  const ir::Target& target() const { return target_; }

  // Makes this device's context current on the thread for a scope; the caller's is restored at its end.
  class Scope {
   public:
    explicit Scope(const CudaDevice& device) : device_(device) {
      device.driver_.check(device.driver_.context_push(device.context_), "cuCtxPushCurrent");
    }
    ~Scope() {
      CudaContext mine = nullptr;
      device_.driver_.context_pop(&mine);
    }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    const CudaDevice& device_;
  };

  // Stream-ordered. Null when out of memory. Within a Scope.
  void* acquire(int64_t bytes, CudaStream stream) const;
  void release(void* data, CudaStream stream) const noexcept;

  // A position in pinned host memory, which kernels lower atomically and the host reads without a driver call.
  // INT64_MAX when acquired.
  int64_t* take_cell();
  void give_cell(int64_t* cell);

 private:
  const CudaDriver& driver_;
  const int ordinal_;
  int device_ = 0, architecture_ = 0;
  std::string name_;
  ir::Target target_;
  CudaContext context_ = nullptr;
  CudaPool pool_ = nullptr;
  Mutex mutex_;
  std::vector<void*> blocks_;
  std::vector<int64_t*> free_cells_;
};

}  // namespace gradloom
