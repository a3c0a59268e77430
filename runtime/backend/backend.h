#pragma once
// What runs kernels for a Runtime: the interpreter, machine code by LLVM, CUDA text on the host's CPU, an NVIDIA GPU.
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

// What a launch may use, and how its errors speak.
struct LaunchSite {
  const LaunchOptions& options;
  const Threads& threads;
  Recycler& recycler;
  const std::string& name;  // of the op or the own kernel
  bool own = false;         // an embedder wrote the nest: what the interpreter finds wrong with it is the embedder's
};

// A kernel that can be launched. Whoever holds one keeps its code.
class LoadedKernel {
 public:
  virtual ~LoadedKernel() = default;
  // Runs it on this thread and the site's. The smallest bad position, no_bad_position for none. Throws Error.
  virtual int64_t launch(void* const* buffers, const int64_t* scalars, const LaunchSite& site) const = 0;
  virtual int64_t code_bytes() const = 0;
  virtual bool interpreted() const { return false; }
};

struct CompiledCode {
  std::shared_ptr<const LoadedKernel> kernel;
  std::string code;  // what `load` takes, where kernels are kept on disk
  double ms = 0;     // of the compiler
  CompileStages stages;
};

// For keys and records of the disk cache.
struct BackendToolchain {
  std::string compiler;  // empty: this backend keeps no kernels
  std::string features;  // of the instruction set
  std::string cpu;       // that code is tuned for
};

class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::string name() const = 0;  // "llvm x86-64-v3", "interpreter", "cuda-host sm_90"
  virtual const ir::Target& target() const = 0;
  // It takes authored nests, and nothing is scheduled or lowered for it.
  virtual bool runs_authored() const { return false; }
  virtual CompiledCode compile(const ir::Kernel& kernel) const = 0;
  virtual BackendToolchain toolchain() const { return {}; }
  virtual std::shared_ptr<const LoadedKernel> load(const std::string& name, std::string_view code) const;
  virtual std::vector<DumpFile> texts(const ir::Kernel& lowered) const = 0;  // beside the nests

  // A device with memory of its own.
  virtual int device() const { return -1; }
  virtual std::shared_ptr<void> allocate(int64_t bytes, void* stream) const;  // throws Error(resource_exhausted)
  virtual void copy(void* to, const void* from, int64_t bytes,
                    void* stream) const;    // either side may be the host's; waits
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
