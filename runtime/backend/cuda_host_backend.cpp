// Target cuda-host: the text of GPU kernels, compiled with the host's C++ compiler and run by the CPU.
#include <fmt/format.h>

#include <chrono>
#include <cstdlib>

#include "runtime/backend/backend.h"

#ifdef GRADLOOM_WITH_CUDA
#include "codegen/cuda_host/host_executor.h"
#endif

namespace gradloom {

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

class HostKernel : public LoadedKernel {
 public:
  HostKernel(codegen::CudaModule module, std::shared_ptr<const codegen::HostModule> loaded, Turns turns)
      : module_(std::move(module)), loaded_(std::move(loaded)), turns_(turns) {}
  int64_t launch(void* const* buffers, const int64_t* scalars, const LaunchSite&) const override {
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
class CudaHost : public Backend {
 public:
  CudaHost() : target_(host_gpu_target()), turns_(turns_from_environment()) {}
  std::string name() const override { return "cuda-host " + target_.name; }
  const ir::Target& target() const override { return target_; }
  CompiledCode compile(const ir::Kernel& lowered) const override {
    codegen::CudaModule module = codegen::emit_cuda(lowered);
    const auto start = std::chrono::steady_clock::now();
    auto loaded = codegen::HostModule::compile(module);
    const double ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
    return {.kernel = std::make_shared<HostKernel>(std::move(module), std::move(loaded), turns_), .code = {}, .ms = ms};
  }
  std::vector<DumpFile> texts(const ir::Kernel& lowered) const override {
    return {{"cu", codegen::emit_cuda(lowered).text}};
  }

 private:
  const ir::Target target_;
  const Turns turns_;
};

}  // namespace

std::unique_ptr<Backend> open_cuda_host() { return std::make_unique<CudaHost>(); }
#else
namespace {
[[noreturn]] void no_cuda() {
  throw Error(ErrorCode::unsupported, "target cuda: this build has no CUDA; available: llvm, interpreter");
}
}  // namespace
std::unique_ptr<Backend> open_cuda_host() { no_cuda(); }
std::unique_ptr<Backend> open_cuda(const RuntimeOptions&) { no_cuda(); }
#endif

}  // namespace gradloom
