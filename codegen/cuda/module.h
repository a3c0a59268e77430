#pragma once
// What a lowered GPU kernel (ir/analysis/verify_gpu.h) becomes: CUDA C++ text with one __global__ function a grid loop,
// and the host part as a small program over 64-bit slots that says what to launch. Everything here is plain data: it
// can be kept on disk, and walked without IR and without a GPU.
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "gradloom/stmt.h"
#include "gradloom/target.h"
#include "ir/scalar_program.h"

namespace gradloom::codegen {

// An argument of a __global__ function, in the order of its parameters.
struct CudaArgument {
  enum Kind : uint8_t {
    buffer,   // a pointer: the kernel's parameter `index`
    scratch,  // a pointer: the scratch block `index`
    slot,     // a 64-bit integer, or a value's bits: the host program's slot `index`
    status,   // a pointer to one int64_t in device memory: the smallest bad position, lowered atomically; the launcher
              // sets it to INT64_MAX before
    barrier,  // a pointer to barrier_bytes of device memory for this launch alone, 0 before it: where the blocks of a
              // cooperative function meet
  } kind = buffer;
  static constexpr Kind last = barrier;  // what a file may hold goes up to it
  int index = 0;
};

struct CudaFunction {
  std::string name;
  int threads = 1;           // of a block: a multiple of 32, at most 1024
  int64_t shared_bytes = 0;  // of a block, dynamic
  std::vector<CudaArgument> arguments;
  // Its blocks wait for one another, so that all of a launch must run at once: as many as fit, and at least so many. 0:
  // an ordinary function.
  int64_t cooperative = 0;
  int64_t unrolled =
      0;  // what NVRTC makes of short words, in characters of ordinary text that would compile as long; of no use later
};
constexpr int64_t barrier_bytes = 4;

// What the launcher evaluates over its slots, each a value's bits.
using HostCode = ir::ScalarCode;
using HostValue = ir::ScalarProgram;

struct HostStep {
  enum Kind : uint8_t {
    launch,  // function `index` with `value` blocks; none when that is not positive
    loop,    // slot `index` counts from `begin` (and wraps), `value` times, through body
    branch,  // body when `value` is not 0, else otherwise
    let,     // slot `index` = value, then body
    scratch  // block `index` of `value` bytes lives through body
  } kind = launch;
  static constexpr Kind last = scratch;
  int index = 0;
  HostValue value, begin;
  std::vector<HostStep> body, otherwise;
};

// A function of a module's text begins so, on a line of its own.
inline constexpr const char* function_mark = "\nGL_KERNEL(";

struct CudaModule {
  std::string text;  // the functions, without the prelude (prelude.h)
  std::vector<CudaFunction> functions;
  std::vector<HostStep> steps;
  int buffers = 0, scalars = 0;  // of the kernel; scalars are the first slots
  int slots = 0, scratch_blocks = 0;
};

// What a module's text was compiled to, or a part of it: its images together hold the functions in the module's order.
struct CudaImage {
  std::string bytes;  // a cubin, or PTX
  int functions = 0;  // so many of the module's
};

// Throws Error(unsupported) naming what has no CUDA form; the kernel verifies as Stage::lowered and is a GPU's
// (is_gpu).
CudaModule emit_cuda(const ir::Kernel& lowered);

// What a launcher does. Pointers are the launcher's own (device memory).
struct LaunchSink {
  std::function<void*(int64_t bytes)> acquire;             // null: none left, the walk throws resource_exhausted
  std::function<void(void* data, int64_t bytes)> release;  // once the launches so far have used it, in stream order
  std::function<void(void* data, int64_t bytes)> zero;     // before the launches that follow, in stream order
  // Arguments as cuLaunchKernel takes them: a pointer to each value. Of a cooperative function, `blocks` are what it
  // can make use of.
  std::function<void(const CudaFunction& function, int64_t blocks, std::span<void*> arguments)> launch;
};
// Runs the host part: pure but for the sink. Blocks are 1 to 2^31 - 1 a launch (a grid loop strides over more); empty
// grids are skipped.
void launch_all(const CudaModule& module, std::span<void* const> buffers, std::span<const int64_t> scalars,
                void* status, const LaunchSink& sink);

}  // namespace gradloom::codegen
