#pragma once
// The helpers that kernel text calls (their names start with gl_): conversions, exact arithmetic, ordered adds of a warp. Each has a device form and a host
// twin, so that the kernel text itself is portable.
namespace gradloom::codegen {

const char* common_prelude();  // part of both: what is plain C++
const char* cuda_prelude();  // for NVRTC; without includes
const char* host_prelude();  // for the host's C++ compiler: the same names, and CUDA's words (__global__, threadIdx, ...), on fibers that the executor runs

}  // namespace gradloom::codegen
