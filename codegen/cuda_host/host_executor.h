#pragma once
// Runs the text of GPU kernels without a GPU: compiled with the host's C++ compiler behind host_prelude(), the threads
// of a block as fibers. Besides the results it checks for divergence (not all threads, or blocks, reach the same call
// of a barrier or warp-level primitive), and for missing barriers, through poisoned memory and varied scheduling order.
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "codegen/cuda/module.h"

namespace gradloom::codegen {

// The scheduling order of blocks, and of threads between two barriers. A correct kernel gives the same results in any.
enum class HostOrder : uint8_t { forward, reverse, shuffled };

// Signed overflow is undefined under NVRTC, so no text may rely on its result. Here it wraps, or traps and ends the
// process (always in builds with AddressSanitizer).
enum class HostOverflow : uint8_t { wraps, traps };

class HostModule {
 public:
  // Throws Error(device_error) where there is no C++ compiler (CXX in the environment, else c++), Error(compile_failed)
  // with the compiler's first error line.
  static std::shared_ptr<const HostModule> compile(const CudaModule& module);
  // Compiles several modules with one run of the compiler.
  static std::vector<std::shared_ptr<const HostModule>> compile(std::span<const CudaModule* const> modules,
                                                                HostOverflow overflow = HostOverflow::wraps);

  // As cuLaunchKernel, or cuLaunchCooperativeKernel. Throws Error(internal) naming a function whose threads or blocks
  // diverge at a barrier.
  void launch(const CudaFunction& function, int64_t blocks, std::span<void*> arguments,
              HostOrder order = HostOrder::forward, uint64_t seed = 1) const;

  int64_t code_bytes() const { return code_bytes_; }

 private:
  using Call = void (*)(void** arguments);
  std::shared_ptr<void> library_;
  void (*enter_)(struct GlHostState*) = nullptr;
  std::unordered_map<std::string, Call> calls_;
  int64_t code_bytes_ = 0;
};

// Runs the whole host part, with poisoned scratch from the heap. Returns the smallest bad position, INT64_MAX when
// there is none.
int64_t run_on_host(const CudaModule& module, const HostModule& loaded, std::span<void* const> buffers,
                    std::span<const int64_t> scalars, HostOrder order = HostOrder::forward, uint64_t seed = 1);

}  // namespace gradloom::codegen
