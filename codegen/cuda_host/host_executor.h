#pragma once
// Runs the text of GPU kernels without a GPU: compiled with the host's C++ compiler behind host_prelude(), the threads
// of a block as fibers. What is checked beside the results: a barrier or a warp's word that not all threads (or blocks)
// reach at the same place, and through poisoned memory and the choice of order, a missing one.
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "codegen/cuda/module.h"

namespace gradloom::codegen {

// In which order blocks, and threads between two barriers, take their turns. A right kernel gives the same in any.
enum class HostOrder : uint8_t { forward, reverse, shuffled };

// Signed arithmetic that overflows is undefined for NVRTC, so that no text may rely on what it gives. It wraps, or it
// ends the process (in builds with AddressSanitizer always).
enum class HostOverflow : uint8_t { wraps, traps };

class HostModule {
 public:
  // Throws Error(device_error) where there is no C++ compiler (CXX in the environment, else c++), Error(compile_failed)
  // with the compiler's first line.
  static std::shared_ptr<const HostModule> compile(const CudaModule& module);
  // Several with one run of the compiler.
  static std::vector<std::shared_ptr<const HostModule>> compile(std::span<const CudaModule* const> modules,
                                                                HostOverflow overflow = HostOverflow::wraps);

  // As cuLaunchKernel, or cuLaunchCooperativeKernel. Throws Error(internal) naming the function whose threads or blocks
  // part.
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

// The whole host part, with scratch from the heap, poisoned. The smallest bad position, INT64_MAX when there is none.
int64_t run_on_host(const CudaModule& module, const HostModule& loaded, std::span<void* const> buffers,
                    std::span<const int64_t> scalars, HostOrder order = HostOrder::forward, uint64_t seed = 1);

}  // namespace gradloom::codegen
