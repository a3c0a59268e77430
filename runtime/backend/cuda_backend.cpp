// The CUDA target: text through NVRTC, launches on the caller's stream, asynchronous unless a wait is requested.
#ifdef GRADLOOM_WITH_CUDA
#include <fmt/format.h>

#include <atomic>
#include <mutex>
#include <optional>
#include <vector>

#include "codegen/abi.h"
#include "runtime/backend/backend.h"
#include "runtime/backend/cuda_code.h"
#include "runtime/backend/cuda_device.h"
#include "runtime/threads/usable_threads.h"
#include "support/fork.h"

namespace gradloom {
namespace {

// Kernels whose status cells are read at the next synchronisation.
struct Launched {
  Mutex mutex;
  std::vector<std::weak_ptr<const class CudaKernel>> kernels;
  std::vector<Error> failures;  // of kernels that have been destroyed
};

class CudaKernel : public LoadedKernel, public std::enable_shared_from_this<CudaKernel> {
 public:
  CudaKernel(std::shared_ptr<CudaDevice> device, std::shared_ptr<Launched> launched, std::string name, CudaCode code)
      : device_(std::move(device)),
        launched_(std::move(launched)),
        name_(std::move(name)),
        module_(std::move(code.module)) {
    const CudaDevice::Scope scope(*device_);
    try {
      for (const codegen::CudaImage& image : code.images) load(image);
      cell_ = device_->take_cell();
    } catch (...) {
      unload();
      throw;
    }
  }
  ~CudaKernel() override {
    try {
      const CudaDevice::Scope scope(*device_);
      unload();  // waits for running launches: nothing uses the cell afterwards
      if (std::optional<Error> failure = take_failure()) {
        std::lock_guard lock(launched_->mutex);
        launched_->failures.push_back(std::move(*failure));
      }
      device_->give_cell(cell_);
    } catch (const Error&) {
      return;  // the process is exiting, and the driver is shut down
    }
  }

  int64_t launch(void* const* buffers, const int64_t* scalars, const LaunchSite& site) const override {
    const LaunchOptions& options = site.options;
    const CudaDevice::Scope scope(*device_);
    if (options.check == CheckMode::deferred) {
      remember();
      run(buffers, scalars, cell_, options.stream);
      return no_bad_position;
    }
    struct Cell {
      const CudaKernel& kernel;
      CudaStream stream;
      int64_t* const position = kernel.device_->take_cell();
      bool done = false;
      // Launches before the failure may still write it.
      ~Cell() {
        if (!done) kernel.device_->driver().synchronize(stream);
        kernel.device_->give_cell(position);
      }
    } cell{*this, options.stream};
    run(buffers, scalars, cell.position, options.stream);
    device_->driver().check(device_->driver().synchronize(options.stream), name_.c_str());
    cell.done = true;
    return std::atomic_ref(*cell.position).load();
  }
  int64_t code_bytes() const override { return bytes_; }

  // The next launch adds it to the list again.
  void forget() const { remembered_.store(false); }
  // Failures found by launches since the last call, once these have completed.
  std::optional<Error> take_failure() const {
    const int64_t position = std::atomic_ref(*cell_).exchange(no_bad_position);
    if (position == no_bad_position) return std::nullopt;
    return Error(
        ErrorCode::out_of_range,
        fmt::format("{}: an index is out of range at position {}, found on the device; CheckMode::sync names its value",
                    name_, position));
  }

 private:
  static constexpr int64_t default_shared_bytes = 48 << 10;

  void load(const codegen::CudaImage& image) {
    const CudaDriver& driver = device_->driver();
    char log[4096] = {};
    int names[] = {cu::jit_error_log, cu::jit_error_log_bytes};
    void* values[] = {log, reinterpret_cast<void*>(sizeof log - 1)};
    CudaModuleHandle loaded = nullptr;
    if (const int failed = driver.module_load(&loaded, image.bytes.c_str(), 2, names, values)) {
      driver.check(failed, fmt::format("loading {}{}{}", name_, *log ? ": " : "", log).c_str());
    }
    loaded_.push_back(loaded);
    bytes_ += static_cast<int64_t>(image.bytes.size());
    for (int i = 0; i < image.functions; ++i) {
      const codegen::CudaFunction& f = module_.functions[functions_.size()];
      CudaFunctionHandle function = nullptr;
      driver.check(driver.module_function(&function, loaded, f.name.c_str()), "cuModuleGetFunction");
      if (f.shared_bytes > default_shared_bytes) {
        driver.check(driver.function_set(function, cu::max_dynamic_shared_bytes, static_cast<int>(f.shared_bytes)),
                     fmt::format("{} bytes of shared memory for {}", f.shared_bytes, f.name).c_str());
      }
      functions_.push_back(function);
      resident_.push_back(f.cooperative ? resident(f, function) : 0);
    }
  }
  void unload() const {
    for (const CudaModuleHandle loaded : loaded_) device_->driver().module_unload(loaded);
  }
  // The number of blocks that can be resident on the device at once.
  int64_t resident(const codegen::CudaFunction& f, CudaFunctionHandle function) const {
    if (!device_->target().cooperative)
      throw Error(ErrorCode::unsupported,
                  fmt::format("{}: {} has no cooperative launches, which {} needs", name_, device_->name(), f.name));
    int blocks = 0;
    device_->driver().check(
        device_->driver().resident_blocks(&blocks, function, f.threads, static_cast<size_t>(f.shared_bytes)),
        "cuOccupancyMaxActiveBlocksPerMultiprocessor");
    const int64_t all = int64_t{blocks} * device_->target().multiprocessors;
    if (all < f.cooperative)
      throw Error(ErrorCode::unsupported, fmt::format("{}: {} of {} needs {} blocks at once; {} runs {}", name_, f.name,
                                                      f.threads, f.cooperative, device_->name(), all));
    return all;
  }

  void remember() const {
    if (remembered_.exchange(true)) return;
    std::lock_guard lock(launched_->mutex);
    launched_->kernels.push_back(weak_from_this());
  }

  void run(void* const* buffers, const int64_t* scalars, int64_t* cell, CudaStream stream) const {
    const codegen::LaunchSink sink{
        .acquire = [&](int64_t bytes) { return device_->acquire(bytes, stream); },
        .release = [&](void* data, int64_t) { device_->release(data, stream); },
        .zero =
            [&](void* data, int64_t bytes) {
              device_->driver().check(device_->driver().set_words(reinterpret_cast<CudaPointer>(data), 0,
                                                                  static_cast<size_t>(bytes) / 4, stream),
                                      "cuMemsetD32Async");
            },
        .launch =
            [&](const codegen::CudaFunction& function, int64_t blocks, std::span<void*> arguments) {
              const auto index = static_cast<size_t>(&function - module_.functions.data());
              if (function.cooperative) {
                const auto fitting = static_cast<unsigned>(std::min(blocks, resident_[index]));
                return device_->driver().check(
                    device_->driver().launch_cooperative(
                        functions_[index], fitting, 1, 1, static_cast<unsigned>(function.threads), 1, 1,
                        static_cast<unsigned>(function.shared_bytes), stream, arguments.data()),
                    function.name.c_str());
              }
              device_->driver().check(device_->driver().launch(functions_[index], static_cast<unsigned>(blocks), 1, 1,
                                                               static_cast<unsigned>(function.threads), 1, 1,
                                                               static_cast<unsigned>(function.shared_bytes), stream,
                                                               arguments.data(), nullptr),
                                      function.name.c_str());
            }};
    codegen::launch_all(module_, {buffers, static_cast<size_t>(module_.buffers)},
                        {scalars, static_cast<size_t>(module_.scalars)}, cell, sink);
  }

  const std::shared_ptr<CudaDevice> device_;
  const std::shared_ptr<Launched> launched_;
  const std::string name_;
  const codegen::CudaModule module_;
  int64_t bytes_ = 0;
  std::vector<CudaModuleHandle> loaded_;
  std::vector<CudaFunctionHandle> functions_;
  std::vector<int64_t> resident_;  // of cooperative functions: the number of resident blocks
  int64_t* cell_ = nullptr;
  mutable std::atomic<bool> remembered_{false};
};

class Cuda : public Backend {
 public:
  explicit Cuda(const RuntimeOptions& options)
      : device_(std::make_shared<CudaDevice>(CudaDriver::get(), options.device, options.recycle_bytes)),
        threads_(options.threads > 0 ? options.threads : usable_threads()) {}

  std::string name() const override { return fmt::format("cuda {} {}", device_->target().name, device_->name()); }
  const ir::Target& target() const override { return device_->target(); }
  int device() const override { return device_->ordinal(); }

  CompiledCode compile(const ir::Kernel& lowered) const override {
    CompiledCode compiled;
    CudaCode code = compile_cuda(lowered, device_->architecture(), threads_, compiled.ms);
    compiled.code = encode(code);
    compiled.kernel = std::make_shared<CudaKernel>(device_, launched_, lowered.name, std::move(code));
    return compiled;
  }
  BackendToolchain toolchain() const override {
    try {
      return {cuda_toolchain(), target().name, {}};
    } catch (const Error&) {
      return {};  // the first compile reports it
    }
  }
  std::shared_ptr<const LoadedKernel> load(const std::string& name, std::string_view code) const override {
    return std::make_shared<CudaKernel>(device_, launched_, name, decode_cuda_code(code));
  }
  std::vector<DumpFile> texts(const ir::Kernel& lowered) const override {
    return {{"cu", codegen::emit_cuda(lowered).text}};
  }

  std::shared_ptr<void> allocate(int64_t bytes, void* stream) const override {
    const CudaDevice::Scope scope(*device_);
    void* data = device_->acquire(bytes, stream);
    if (!data) throw Error(ErrorCode::resource_exhausted, fmt::format("no device memory for {} bytes", bytes));
    return {data, [device = device_, stream](void* memory) {
              try {
                const CudaDevice::Scope scope(*device);
                device->release(memory, stream);
              } catch (const Error&) {
                return;  // the process is exiting, and the driver is shut down
              }
            }};
  }

  void copy(void* to, const void* from, int64_t bytes, void* stream) const override {
    const CudaDevice::Scope scope(*device_);
    device_->driver().check(
        device_->driver().copy(reinterpret_cast<CudaPointer>(to), reinterpret_cast<CudaPointer>(from),
                               static_cast<size_t>(bytes), stream),
        "cuMemcpyAsync");
    device_->driver().check(device_->driver().synchronize(stream), "cuStreamSynchronize");
  }

  void synchronize(void* stream) const override {
    {
      const CudaDevice::Scope scope(*device_);
      device_->driver().check(device_->driver().synchronize(stream), "cuStreamSynchronize");
    }
    // Declared before the lock is taken: releasing the last reference unloads a kernel, which takes it.
    std::vector<std::shared_ptr<const CudaKernel>> kernels;
    std::vector<Error> failures;
    {
      std::lock_guard lock(launched_->mutex);
      for (const auto& weak : launched_->kernels) {
        auto kernel = weak.lock();
        if (!kernel) continue;
        kernel->forget();
        kernels.push_back(std::move(kernel));
      }
      launched_->kernels.clear();
      failures.swap(launched_->failures);
    }
    std::optional<Error> first;
    if (!failures.empty()) first = failures.front();
    for (const auto& kernel : kernels) {
      if (std::optional<Error> failure = kernel->take_failure(); failure && !first) first = std::move(failure);
    }
    if (first) throw *first;
  }

 private:
  const std::shared_ptr<CudaDevice> device_;
  const int threads_;  // for compiling
  const std::shared_ptr<Launched> launched_ = std::make_shared<Launched>();
};

}  // namespace

std::unique_ptr<Backend> open_cuda(const RuntimeOptions& options) { return std::make_unique<Cuda>(options); }

}  // namespace gradloom
#endif
