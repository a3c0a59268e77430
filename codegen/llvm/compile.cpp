// The timed compilation stages, from a lowered kernel to a relocatable object.
#include <llvm/Config/llvm-config.h>
#include <llvm/IR/DiagnosticInfo.h>
#include <llvm/IR/DiagnosticPrinter.h>
#include <llvm/IR/Verifier.h>
#include <llvm/Support/raw_ostream.h>
#include <llvm/TargetParser/Host.h>

#include <atomic>

#include "codegen/llvm/emitter.h"
#include "codegen/llvm/toolchain.h"

namespace gradloom::codegen {
namespace {

std::atomic<int64_t> compilations{0};

[[noreturn]] void failed(const std::string& what) { throw Error(ErrorCode::compile_failed, "llvm: " + what); }

void verify(llvm::Module& module) {
  std::string message;
  llvm::raw_string_ostream stream(message);
  if (llvm::verifyModule(module, &stream)) failed("the module is malformed: " + message);
}

llvm::Module& emit(LlvmWork& work, const ir::Kernel& kernel, const Isa& isa, const std::string& symbol) {
  work.context = std::make_unique<llvm::LLVMContext>();
  work.context->setDiagnosticHandlerCallBack(
      [](const llvm::DiagnosticInfo* info, void* to) {
        if (info->getSeverity() != llvm::DS_Error) return;
        llvm::raw_string_ostream stream(*static_cast<std::string*>(to));
        llvm::DiagnosticPrinterRawOStream printer(stream);
        info->print(printer);
      },
      &work.diagnosed);
  work.module = std::make_unique<llvm::Module>(kernel.name, *work.context);
  llvm::TargetMachine& machine = Toolchain::of(isa).machine();
  work.module->setTargetTriple(machine.getTargetTriple());
  work.module->setDataLayout(machine.createDataLayout());
  Emitter(*work.module, isa).kernel(kernel, symbol);
  return *work.module;
}

}  // namespace

// ELF allows any character in a symbol, but assembly and profilers expect an identifier.
std::string symbol_of(const std::string& name) {
  std::string symbol;
  for (const char c : name) symbol += std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
  return symbol.empty() ? "kernel" : symbol;
}

ObjectCode compile_object(const ir::Kernel& lowered, const Isa& isa) {
  ObjectCode result;
  guarded(bytes_to_compile(), [&](LlvmWork& work) {
    Toolchain& toolchain = Toolchain::of(isa);
    Stopwatch watch;
    ++compilations;
    llvm::Module& module = emit(work, lowered, isa, symbol_of(lowered.name));
#ifndef NDEBUG
    verify(module);
#endif
    result.times.emit_ms = watch.lap_ms();
    toolchain.optimize(module);
    result.times.optimize_ms = watch.lap_ms();
    llvm::SmallVector<char, 0> object;
    toolchain.object(module, object);
    if (!work.diagnosed.empty()) failed(work.diagnosed);
    result.bytes.assign(object.begin(), object.end());
    work.module.reset();
    result.times.codegen_ms = watch.lap_ms();
  });
  return result;
}

CompiledKernel compile(const ir::Kernel& lowered, const Isa& isa) {
  const ObjectCode object = compile_object(lowered, isa);
  CompiledKernel result = load(object.bytes, lowered.name);
  const double link_ms = result.times.link_ms;
  result.times = object.times;
  result.times.link_ms = link_ms;
  return result;
}

std::string emit_llvm(const ir::Kernel& lowered, const Isa& isa, bool optimized) {
  std::string text;
  guarded(bytes_to_compile(), [&](LlvmWork& work) {
    llvm::Module& module = emit(work, lowered, isa, symbol_of(lowered.name));
    verify(module);
    if (optimized) Toolchain::of(isa).optimize(module);
    llvm::raw_string_ostream(text) << module;
  });
  return text;
}

std::string emit_assembly(const ir::Kernel& lowered, const Isa& isa) {
  std::string text;
  guarded(bytes_to_compile(), [&](LlvmWork& work) {
    llvm::Module& module = emit(work, lowered, isa, symbol_of(lowered.name));
    verify(module);
    Toolchain::of(isa).optimize(module);
    text = Toolchain::of(isa).assembly(module);
    if (!work.diagnosed.empty()) failed(work.diagnosed);
  });
  return text;
}

std::string toolchain_text() { return std::string("llvm " LLVM_VERSION_STRING " ") + llvm::sys::getProcessTriple(); }
int64_t compile_count() { return compilations; }

}  // namespace gradloom::codegen
