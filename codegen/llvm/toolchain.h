#pragma once
// LLVM's optimiser and code generator, kept per thread and ISA: building their pass lists costs more than a small
// kernel. Private to this folder.
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
  explicit Toolchain(const Isa& isa);
  // This thread's for the ISA.
  static Toolchain& of(const Isa& isa);
  // Forgets this thread's toolchains: an error may have left them half done.
  static void discard();

  llvm::TargetMachine& machine() { return *machine_; }
  void optimize(llvm::Module& module);
  void object(llvm::Module& module, llvm::SmallVectorImpl<char>& out);
  std::string assembly(llvm::Module& module);

 private:
  // LLVM's instruction selection keeps a few bytes of what it selected for as long as it lives
  // (SelectionDAG::setNodeMemRefs).
  bool worn() const { return generated_bytes_ > 8 << 20; }
  size_t generated_bytes_ = 0;

  std::unique_ptr<llvm::TargetMachine> machine_;
  llvm::LoopAnalysisManager loops_;
  llvm::FunctionAnalysisManager functions_;
  llvm::CGSCCAnalysisManager calls_;
  llvm::ModuleAnalysisManager modules_;
  llvm::FunctionPassManager passes_;
  // The code generator's passes serve one module after another; they write to `object_`.
  llvm::SmallVector<char, 0> object_;
  llvm::raw_svector_ostream stream_{object_};
  llvm::legacy::PassManager generator_;
};

// Adds instruction selection to machine code or its text.
void add_code_generator(llvm::legacy::PassManager& manager, llvm::TargetMachine& machine, llvm::raw_pwrite_stream& out,
                        llvm::CodeGenFileType type);

// Runs `body`, turning LLVM's fatal errors and bad_alloc within it into Error(compile_failed).
void guarded(const std::function<void()>& body);

// The function's symbol in a kernel's object.
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
