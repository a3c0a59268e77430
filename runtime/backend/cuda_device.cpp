#include "runtime/backend/cuda_device.h"

#include <fmt/format.h>

#include <limits>

#include "gradloom/error.h"

namespace gradloom {

CudaDevice::CudaDevice(const CudaDriver& driver, int ordinal, int64_t keep_bytes) : driver_(driver), ordinal_(ordinal) {
  int count = 0;
  driver.check(driver.device_count(&count), "cuDeviceGetCount");
  if (ordinal < 0 || ordinal >= count)
    throw Error(ErrorCode::device_error,
                fmt::format("target cuda: device {} was asked for; this machine has {}", ordinal, count));
  driver.check(driver.device_get(&device_, ordinal), "cuDeviceGet");
  const auto attribute = [&](cu::Attribute which) {
    int value = 0;
    driver.check(driver.device_attribute(&value, which, device_), "cuDeviceGetAttribute");
    return value;
  };
  char name[256] = {};
  driver.check(driver.device_name(name, sizeof name - 1, device_), "cuDeviceGetName");
  name_ = name;
  architecture_ = attribute(cu::major) * 10 + attribute(cu::minor);
  if (attribute(cu::pools) == 0)
    throw Error(ErrorCode::device_error, fmt::format("target cuda: {} has no stream-ordered memory pools", name_));
  target_ = {.name = fmt::format("sm_{}", architecture_),
             .vector_bytes = 16,
             .gpu = true,
             .multiprocessors = attribute(cu::multiprocessors),
             .cooperative = attribute(cu::cooperative) != 0,
             .shared_bytes = attribute(cu::shared_bytes_opt_in),
             .matrix_units = architecture_ >= 80};
  driver.check(driver.context_retain(&context_, device_), "cuDevicePrimaryCtxRetain");
  cu::PoolProperties properties;
  properties.device = ordinal;
  int failed = driver.pool_create(&pool_, &properties);
  uint64_t keep = keep_bytes;
  if (!failed) failed = driver.pool_set(pool_, cu::release_threshold, &keep);
  if (failed) {
    if (pool_) driver.pool_destroy(pool_);
    driver.context_release(device_);
    driver.check(failed, "cuMemPoolCreate");
  }
}

CudaDevice::~CudaDevice() {
  for (void* block : blocks_) driver_.host_free(block);
  driver_.pool_destroy(pool_);
  driver_.context_release(device_);
}

void* CudaDevice::acquire(int64_t bytes, CudaStream stream) const {
  CudaPointer data = 0;
  const int failed = driver_.allocate(&data, static_cast<size_t>(bytes), pool_, stream);
  if (failed == cu::out_of_memory) return nullptr;
  driver_.check(failed, "cuMemAllocFromPoolAsync");
  return reinterpret_cast<void*>(data);
}

void CudaDevice::release(void* data, CudaStream stream) const noexcept {
  driver_.free(reinterpret_cast<CudaPointer>(data), stream);
}

int64_t* CudaDevice::take_cell() {
  std::lock_guard lock(mutex_);
  if (free_cells_.empty()) {
    constexpr size_t cells = 512;
    void* block = nullptr;
    driver_.check(driver_.host_allocate(&block, cells * sizeof(int64_t)), "cuMemAllocHost");
    blocks_.push_back(block);
    for (size_t i = 0; i < cells; ++i) free_cells_.push_back(static_cast<int64_t*>(block) + i);
  }
  int64_t* const cell = free_cells_.back();
  free_cells_.pop_back();
  *cell = std::numeric_limits<int64_t>::max();
  return cell;
}

void CudaDevice::give_cell(int64_t* cell) {
  std::lock_guard lock(mutex_);
  free_cells_.push_back(cell);
}

}  // namespace gradloom
