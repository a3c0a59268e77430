#pragma once
// Compiles CUDA text to machine code for a GPU with NVRTC, loaded at run time. Building this needs neither the toolkit
// nor a GPU; NVRTC needs no GPU either.
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "codegen/cuda/module.h"

namespace gradloom::codegen {

// The multiprocessor resources that a function uses.
struct CudaResources {
  std::string function;
  int registers = 0;         // per thread
  int64_t local_bytes = 0;   // per thread, of local memory: arrays that are not in registers, and spills
  int64_t spill_bytes = 0;   // of these, spilled registers: bytes of stores and loads as ptxas counts them; 0 unless a
                             // report was requested
  int64_t shared_bytes = 0;  // per block, as launched
  int64_t code_bytes = 0;
};

struct CudaBinary {
  std::vector<CudaImage> images;  // exactly one for PTX
  bool ptx = false;
  std::string log;                       // NVRTC's; empty if it printed nothing
  double ms = 0;                         // from the start of the first nvrtcCompileProgram to the end of the last
  std::vector<CudaResources> resources;  // for a cubin, in the module's order
};

class Nvrtc {
 public:
  // Loads the library from GRADLOOM_CUDA_PATH (a toolkit's folder, or the library's own), and nowhere else where that
  // is set; otherwise from the loader's path and the toolkit's default folders. Throws Error(device_error) listing what
  // was tried. A success is cached; a failure is not.
  static const Nvrtc& get();
  // As if GRADLOOM_CUDA_PATH were `folder`; empty: not set.
  explicit Nvrtc(const std::string& folder);
  ~Nvrtc();
  Nvrtc(const Nvrtc&) = delete;
  Nvrtc& operator=(const Nvrtc&) = delete;

  const std::string& version() const { return version_; }                   // "13.0"
  const std::vector<int>& architectures() const { return architectures_; }  // ascending: 75, 80, ..., 120

  // For a device of compute capability `architecture` (90 for 9.0): a cubin where this NVRTC knows it, else PTX for the
  // newest below it, which the driver translates. `report` adds the spills. A long text of several functions is
  // compiled in parts, by up to `threads` threads at once. Throws Error(compile_failed) with NVRTC's log,
  // Error(unsupported) for a device older than all it knows.
  CudaBinary compile(const CudaModule& module, int architecture, bool report = false, int threads = 1) const;
  CudaBinary compile_to_ptx(const CudaModule& module, int architecture) const;
  // With the report. Throws Error(unsupported) where this NVRTC makes PTX only.
  CudaBinary compile_to_machine_code(const CudaModule& module, int architecture) const;

 private:
  struct Functions;
  struct Compiled {
    std::string image, log;
  };
  CudaBinary compile(const CudaModule& module, const std::string& architecture, bool ptx, bool report,
                     int threads) const;
  Compiled compile_text(const std::string& text, const std::string& architecture, bool ptx, bool report) const;
  [[noreturn]] void fail(const char* what, int code) const;

  std::unique_ptr<Functions> functions_;
  std::string version_;
  std::pair<int, int> number_;  // the version as numbers: major, minor
  std::vector<int> architectures_;
};

// The resources that a cubin records for its functions: name, registers, local and code bytes. Empty if it is no cubin.
std::vector<CudaResources> cubin_resources(const std::string& image);

}  // namespace gradloom::codegen
