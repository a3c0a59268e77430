#pragma once
// Backends that run kernels for a Runtime: the interpreter, machine code by LLVM, CUDA text on the host's CPU, an
// NVIDIA GPU.
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "gradloom/options.h"
#include "gradloom/report.h"
#include "gradloom/stmt.h"
#include "gradloom/target.h"
#include "runtime/diagnose/dump.h"
#include "runtime/memory/recycler.h"
#include "runtime/threads/threads.h"

namespace gradloom {

// The resources that a launch may use, and the context of its error messages.
struct LaunchSite {
  const LaunchOptions& options;
  const Threads& threads;
  Recycler& recycler;
  const std::string& name;  // of the op or the own kernel
  bool own = false;         // an embedder wrote the nest: violations found by the interpreter are the embedder's
};

// A kernel that can be launched. Holders of a reference keep its code alive.
class LoadedKernel {
 public:
  virtual ~LoadedKernel() = default;
  // Runs it on this thread and the site's. Returns the smallest bad position, no_bad_position for none. Throws Error.
  virtual int64_t launch(void* const* buffers, const int64_t* scalars, const LaunchSite& site) const = 0;
  virtual int64_t code_bytes() const = 0;
  virtual bool interpreted() const { return false; }
};

struct CompiledCode {
  std::shared_ptr<const LoadedKernel> kernel;
  std::string code;  // the input of `load`, where kernels are stored on disk
  double ms = 0;     // compile time
  CompileStages stages;
};

// For keys and records of the disk cache.
struct BackendToolchain {
  std::string compiler;  // empty: this backend's kernels are not stored
  std::string features;  // of the instruction set
  std::string cpu;       // that code is tuned for
};

class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::string name() const = 0;  // "llvm x86-64-v3", "interpreter", "cuda-host sm_90"
  virtual const ir::Target& target() const = 0;
  // Whether it takes authored nests, without scheduling or lowering.
  virtual bool runs_authored() const { return false; }
  virtual CompiledCode compile(const ir::Kernel& kernel) const = 0;
  virtual BackendToolchain toolchain() const { return {}; }
  virtual std::shared_ptr<const LoadedKernel> load(const std::string& name, std::string_view code) const;
  // Of the process: compilations whose memory its compiler could not give back.
  virtual int64_t abandoned_compiles() const { return 0; }
  virtual std::vector<DumpFile> texts(const ir::Kernel& lowered) const = 0;  // in addition to the nests

  // For a device with its own memory.
  virtual int device() const { return -1; }
  virtual std::shared_ptr<void> allocate(int64_t bytes, void* stream) const;  // throws Error(resource_exhausted)
  virtual void copy(void* to, const void* from, int64_t bytes,
                    void* stream) const;    // either side may be in host memory; waits
  virtual void synchronize(void*) const {}  // throws what launches found since the last call
};

// By options.target. Throws Error(unsupported) for one that this build or machine lacks.
std::unique_ptr<Backend> open_backend(const RuntimeOptions& options);
std::unique_ptr<Backend> open_interpreter();
std::unique_ptr<Backend> open_llvm(const RuntimeOptions& options);
std::unique_ptr<Backend> open_cuda_host();
std::unique_ptr<Backend> open_cuda(const RuntimeOptions& options);
bool has_llvm();  // this build

bool is_gpu(TargetKind kind);
// The description that kernels for target cuda-host are scheduled for.
ir::Target host_gpu_target();

}  // namespace gradloom
