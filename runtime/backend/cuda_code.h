#pragma once
// Compiled CUDA kernels as bytes, as stored in the disk cache: NVRTC's images, and the host part that describes the
// launches.
#include <string>
#include <string_view>
#include <vector>

#include "codegen/cuda/module.h"

namespace gradloom {

struct CudaCode {
  codegen::CudaModule module;  // without its text
  std::vector<codegen::CudaImage> images;
};
std::string encode(const CudaCode& code);
CudaCode decode_cuda_code(std::string_view bytes);  // throws Error(invalid_argument)

// For a device of compute capability `architecture` (90 for 9.0); `ms`: how long NVRTC took, on up to `threads`
// threads. Throws what emit_cuda and Nvrtc throw.
CudaCode compile_cuda(const ir::Kernel& lowered, int architecture, int threads, double& ms);
// The compiler's identity, for keys. Throws Error(device_error) where there is no NVRTC.
std::string cuda_toolchain();

}  // namespace gradloom
