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

// The instruction set of machine code: LLVM's CPU name for tuning and the exact features, so that a virtual machine
// that lacks some gets code it can run.
struct Isa {
  std::string name;      // "host", or a level: "x86-64-v2", "x86-64-v3", "x86-64-v4"
  std::string cpu;       // for -mcpu
  std::string features;  // "+avx2,-avx512f,..."
  ir::Target target;     // the description that schedules use
};
Isa host_isa();
// "host", or a level: one that the host lacks (to emit text only), or one below the host's features, which it masks
// ("x86-64-v3" on an AVX-512 machine). Throws Error(invalid_argument).
Isa isa_named(const std::string& name);
// The ISA of a cached object: a CPU name for tuning and the exact features.
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

// A relocatable object, as stored in a cache. Deterministic: the same kernel and ISA give the same bytes.
struct ObjectCode {
  std::string bytes;
  CompileTimes times;
};

// All throw Error(compile_failed) with LLVM's message, or Error(resource_exhausted). Thread-safe.
ObjectCode compile_object(const ir::Kernel& lowered, const Isa& isa);  // the ISA need not be the host's
// Links without compiling. Requires: the bytes are from compile_object, for an ISA that this machine runs.
// Throws Error(unsupported) where executable memory is denied.
CompiledKernel load(std::string_view object, const std::string& kernel_name);
CompiledKernel compile(const ir::Kernel& lowered, const Isa& isa);                 // compile_object, then load
std::string emit_llvm(const ir::Kernel& lowered, const Isa& isa, bool optimized);  // textual LLVM IR
std::string emit_assembly(const ir::Kernel& lowered, const Isa& isa);
std::string toolchain_text();  // for cache keys: the compiler's version and target
// Makes LLVM ready, once a process: so that exit, called while the first kernel is compiled, finds none of LLVM's
// objects younger than the handler that waits for the compilation.
void prepare_to_compile();
int64_t compile_count();           // objects compiled by this process so far; loads do not count
int64_t abandoned_compilations();  // of this process: whose memory LLVM could not give back

}  // namespace gradloom::codegen
