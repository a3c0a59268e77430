#pragma once
// LLVM's optimiser and code generator, cached per thread and ISA: building their pass pipelines costs more than
// compiling a small kernel. Private to this folder.
#include <llvm/IR/LegacyPassManager.h>
#include <llvm/IR/Module.h>
#include <llvm/Passes/PassBuilder.h>
#include <llvm/Support/raw_ostream.h>
#include <llvm/Target/TargetMachine.h>

#include <chrono>

#include "codegen/llvm/compiler.h"

namespace gradloom::codegen {

class Toolchain {
 public:
  // This thread's instance for the ISA.
  static Toolchain& of(const Isa& isa);
  // Discards this thread's toolchains: an error may have left them in an inconsistent state.
  static void discard();
  // Forgets them without touching their memory.
  static void abandon();

  llvm::TargetMachine& machine() { return *machine_; }
  void optimize(llvm::Module& module);
  void object(llvm::Module& module, llvm::SmallVectorImpl<char>& out);
  std::string assembly(llvm::Module& module);

 private:
  void set_up(const Isa& isa);
  // Due for replacement: LLVM's instruction selection retains a few bytes of what it selected until it is destroyed
  // (SelectionDAG::setNodeMemRefs).
  bool worn() const { return generated_bytes_ > 8 << 20; }
  size_t generated_bytes_ = 0;

  std::unique_ptr<llvm::TargetMachine> machine_;
  llvm::LoopAnalysisManager loops_;
  llvm::FunctionAnalysisManager functions_;
  llvm::CGSCCAnalysisManager calls_;
  llvm::ModuleAnalysisManager modules_;
  llvm::FunctionPassManager passes_;
  // The code generator's passes are reused across modules; they write to `object_`.
  llvm::SmallVector<char, 0> object_;
  llvm::raw_svector_ostream stream_{object_};
  llvm::legacy::PassManager generator_;
};

// Adds the passes from instruction selection to an object or assembly.
void add_code_generator(llvm::legacy::PassManager& manager, llvm::TargetMachine& machine, llvm::raw_pwrite_stream& out,
                        llvm::CodeGenFileType type);

// What LLVM makes for one kernel.
struct LlvmWork {
  std::unique_ptr<llvm::LLVMContext> context;
  std::unique_ptr<llvm::Module> module;
  std::string diagnosed;  // errors that LLVM went on from
};

// Runs `body`. A fatal error of LLVM within it becomes Error(compile_failed), memory that cannot be had
// Error(resource_exhausted). LLVM cannot be unwound: the work and this thread's toolchains are then abandoned, not
// destroyed, as their state is unknown. `bytes`: what must be there to begin.
void guarded(size_t bytes, const std::function<void(LlvmWork& work)>& body);
// For compiling and for loading. At its first uses LLVM fills tables of the process under its locks, which running out
// of memory would leave locked.
size_t bytes_to_compile();
inline constexpr size_t bytes_to_load = 256 << 10;

// The symbol of the kernel's function in its object.
std::string symbol_of(const std::string& name);

class Stopwatch {
 public:
  double lap_ms() {
    const auto now = std::chrono::steady_clock::now();
    const double ms = std::chrono::duration<double, std::milli>(now - last_).count();
    last_ = now;
    return ms;
  }

 private:
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};

}  // namespace gradloom::codegen
