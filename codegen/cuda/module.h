#pragma once
// The compiled form of a lowered GPU kernel (ir/analysis/verify_gpu.h): CUDA C++ text with one __global__ function per
// grid loop, and the host part as a small program over 64-bit slots that determines the launches. Everything here is
// plain data: it can be stored on disk, and interpreted without IR and without a GPU.
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
    buffer,   // a pointer: the kernel's parameter at `index`
    scratch,  // a pointer: the scratch block `index`
    slot,     // a 64-bit integer, or a value's bits: the host program's slot `index`
    status,   // a pointer to one int64_t in device memory: the smallest bad position, lowered atomically; the launcher
              // sets it to INT64_MAX before
    barrier,  // a pointer to barrier_bytes of zeroed device memory, exclusive to this launch: the grid-wide barrier of
              // a cooperative function
  } kind = buffer;
  static constexpr Kind last = barrier;  // the largest kind that a file may contain
  int index = 0;
};

struct CudaFunction {
  std::string name;
  int threads = 1;           // per block: a multiple of 32, at most 1024
  int64_t shared_bytes = 0;  // per block, dynamic
  std::vector<CudaArgument> arguments;
  // Nonzero: the blocks synchronise with one another, so all blocks of a launch must be co-resident: as many as fit,
  // and at least this many. 0: an ordinary function.
  int64_t cooperative = 0;
  // Extra compile cost of what NVRTC expands from short source text, in characters of ordinary text that take as long
  // to compile. Unused after compilation.
  int64_t unrolled = 0;
};
constexpr int64_t barrier_bytes = 4;

// A program that the launcher evaluates over its slots, each the bits of a value.
using HostCode = ir::ScalarCode;
using HostValue = ir::ScalarProgram;

struct HostStep {
  enum Kind : uint8_t {
    launch,  // launches function `index` with `value` blocks; skipped unless that is positive
    loop,    // runs body `value` times, slot `index` counting from `begin` (wrapping)
    branch,  // runs body when `value` is not 0, else otherwise
    let,     // sets slot `index` = value, then runs body
    scratch  // allocates block `index` of `value` bytes, live through body
  } kind = launch;
  static constexpr Kind last = scratch;
  int index = 0;
  HostValue value, begin;
  std::vector<HostStep> body, otherwise;
};

// Each function of a module's text starts with this, on a new line.
inline constexpr const char* function_mark = "\nGL_KERNEL(";

struct CudaModule {
  std::string text;  // the functions, without the prelude (prelude.h)
  std::vector<CudaFunction> functions;
  std::vector<HostStep> steps;
  int buffers = 0, scalars = 0;  // of the kernel; scalars occupy the first slots
  int slots = 0, scratch_blocks = 0;
};

// The compiled code of a module, or of a part of it: a module's images together contain its functions, in order.
struct CudaImage {
  std::string bytes;  // a cubin, or PTX
  int functions = 0;  // how many of the module's functions it contains
};

// Requires: the kernel verifies as Stage::lowered and targets a GPU (is_gpu). Throws Error(unsupported) naming a
// construct that has no CUDA form.
CudaModule emit_cuda(const ir::Kernel& lowered);

// The operations of a launcher. Pointers are the launcher's own (device memory).
struct LaunchSink {
  std::function<void*(int64_t bytes)> acquire;             // null: out of memory; launch_all throws resource_exhausted
  std::function<void(void* data, int64_t bytes)> release;  // stream-ordered: after the launches so far
  std::function<void(void* data, int64_t bytes)> zero;     // stream-ordered: before the launches that follow
  // Arguments as cuLaunchKernel takes them: a pointer to each value. For a cooperative function, `blocks` is the most
  // that it can use.
  std::function<void(const CudaFunction& function, int64_t blocks, std::span<void*> arguments)> launch;
};
// Interprets the host part; no side effects except through the sink. A launch has 1 to 2^31 - 1 blocks (a larger grid
// loop becomes grid-stride); empty grids are skipped.
void launch_all(const CudaModule& module, std::span<void* const> buffers, std::span<const int64_t> scalars,
                void* status, const LaunchSink& sink);

}  // namespace gradloom::codegen
