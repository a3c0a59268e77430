#include "runtime/backend/gpu.h"

#include <fmt/format.h>

#include <chrono>
#include <cstdlib>

#ifdef GRADLOOM_WITH_CUDA
#include "codegen/cuda_host/host_executor.h"
#endif

namespace gradloom {

ir::Target host_gpu_target() {
  return {.name = "sm_90",
          .vector_bytes = 16,
          .gpu = true,
          .multiprocessors = 132,
          .shared_bytes = 227 << 10,
          .matrix_units = true};
}

bool is_gpu(TargetKind kind) { return kind == TargetKind::cuda_host || kind == TargetKind::cuda; }

std::shared_ptr<const GpuKernel> Gpu::load_code(const std::string&, std::string_view) const {
  throw Error(ErrorCode::internal, "finished code was given to a target that keeps none");
}
std::shared_ptr<void> Gpu::allocate(int64_t, void*) const {
  throw Error(ErrorCode::internal, "device memory was asked of a target that has none");
}
void Gpu::copy(void*, const void*, int64_t, void*) const {
  throw Error(ErrorCode::internal, "a copy was asked of a target that has no memory of its own");
}

#ifdef GRADLOOM_WITH_CUDA
namespace {

// GRADLOOM_CUDA_HOST_ORDER: forward, reverse, or the seed of a shuffle.
struct Turns {
  codegen::HostOrder order = codegen::HostOrder::forward;
  uint64_t seed = 1;
};
Turns turns_from_environment() {
  const char* value = std::getenv("GRADLOOM_CUDA_HOST_ORDER");
  if (!value || !*value || std::string(value) == "forward") return {};
  if (std::string(value) == "reverse") return {codegen::HostOrder::reverse, 1};
  char* end = nullptr;
  const uint64_t seed = std::strtoull(value, &end, 10);
  if (*end)
    throw Error(ErrorCode::invalid_argument,
                fmt::format("GRADLOOM_CUDA_HOST_ORDER is {}, expected forward, reverse or a number", value));
  return {codegen::HostOrder::shuffled, seed};
}

class HostKernel : public GpuKernel {
 public:
  HostKernel(codegen::CudaModule module, std::shared_ptr<const codegen::HostModule> loaded, Turns turns)
      : module_(std::move(module)), loaded_(std::move(loaded)), turns_(turns) {}
  int64_t launch(void* const* buffers, const int64_t* scalars, const LaunchOptions&) const override {
    return codegen::run_on_host(module_, *loaded_, {buffers, static_cast<size_t>(module_.buffers)},
                                {scalars, static_cast<size_t>(module_.scalars)}, turns_.order, turns_.seed);
  }
  int64_t code_bytes() const override { return loaded_->code_bytes(); }

 private:
  const codegen::CudaModule module_;
  const std::shared_ptr<const codegen::HostModule> loaded_;
  const Turns turns_;
};

// Host memory is device memory.
class HostGpu : public Gpu {
 public:
  HostGpu() : target_(host_gpu_target()), turns_(turns_from_environment()) {}
  std::string name() const override { return "cuda-host " + target_.name; }
  const ir::Target& target() const override { return target_; }
  std::shared_ptr<const GpuKernel> load(const ir::Kernel& lowered, double& ms, std::string&) const override {
    codegen::CudaModule module = codegen::emit_cuda(lowered);
    const auto start = std::chrono::steady_clock::now();
    auto loaded = codegen::HostModule::compile(module);
    ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
    return std::make_shared<HostKernel>(std::move(module), std::move(loaded), turns_);
  }

 private:
  const ir::Target target_;
  const Turns turns_;
};

}  // namespace

std::string Gpu::text(const ir::Kernel& lowered) const { return codegen::emit_cuda(lowered).text; }

std::unique_ptr<Gpu> open_gpu(const RuntimeOptions& options) {
  if (options.target == TargetKind::cuda_host) return std::make_unique<HostGpu>();
  if (options.target == TargetKind::cuda) return open_cuda(options);
  return nullptr;
}
#else
std::string Gpu::text(const ir::Kernel&) const { return {}; }

std::unique_ptr<Gpu> open_gpu(const RuntimeOptions& options) {
  if (is_gpu(options.target))
    throw Error(ErrorCode::unsupported, "target cuda: this build has no CUDA; available: llvm, interpreter");
  return nullptr;
}
#endif

}  // namespace gradloom
