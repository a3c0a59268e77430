#pragma once
// Lowered kernels -> LLVM IR -> machine code in this process. No LLVM type appears here.
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "codegen/abi.h"
#include "gradloom/stmt.h"
#include "gradloom/target.h"

namespace gradloom::codegen {

// The machine code's instruction set: LLVM's CPU name for tuning and the exact features, so that a virtual machine that
// lacks some is served right.
struct Isa {
  std::string name;      // "host", or a level: "x86-64-v2", "x86-64-v3", "x86-64-v4"
  std::string cpu;       // for -mcpu
  std::string features;  // "+avx2,-avx512f,..."
  ir::Target target;     // what schedules know of it
};
Isa host_isa();
// A level that the host may or may not have (to emit text) or a masked host ("x86-64-v3" on an AVX-512 machine). Throws
// Error(invalid_argument).
Isa isa_named(const std::string& name);
// That of a cached object: a CPU's name for tuning and the exact features.
Isa isa_of(const std::string& cpu, const std::string& features);
bool runs_here(const Isa& isa);

struct CompileTimes {
  double emit_ms = 0, optimize_ms = 0, codegen_ms = 0, link_ms = 0;
  double total() const { return emit_ms + optimize_ms + codegen_ms + link_ms; }
};

// A function of loaded code, for profilers.
struct CodeSymbol {
  std::string name;
  uint64_t address = 0, bytes = 0;
};

// Loaded code; the function is valid as long as the object lives.
struct CompiledKernel {
  KernelFunction function = nullptr;
  int64_t code_bytes = 0;
  CompileTimes times;
  std::shared_ptr<void> code;
  std::vector<CodeSymbol> symbols;
};

// A relocatable object: what a cache keeps. The same kernel and ISA give the same bytes.
struct ObjectCode {
  std::string bytes;
  CompileTimes times;
};

// All throw Error(compile_failed) with LLVM's message. Thread-safe.
ObjectCode compile_object(const ir::Kernel& lowered, const Isa& isa);  // the ISA need not be this machine's
CompiledKernel load(std::string_view object,
                    const std::string& kernel_name);  // compiles nothing; the bytes must be of compile_object, for an
                                                      // ISA of this machine
CompiledKernel compile(const ir::Kernel& lowered, const Isa& isa);                 // both
std::string emit_llvm(const ir::Kernel& lowered, const Isa& isa, bool optimized);  // textual LLVM IR
std::string emit_assembly(const ir::Kernel& lowered, const Isa& isa);
std::string toolchain_text();  // for keys: the compiler's version and what it compiles for
int64_t compile_count();       // of objects, by this process so far; loads do not count

}  // namespace gradloom::codegen
