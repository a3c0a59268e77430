// Compilation and loading. One LLJIT a process; every kernel is an object of its own under a resource tracker, unloaded with its last handle.
#include <llvm/Config/llvm-config.h>
#include <llvm/ExecutionEngine/Orc/LLJIT.h>
#include <llvm/IR/DiagnosticInfo.h>
#include <llvm/IR/DiagnosticPrinter.h>
#include <llvm/IR/Verifier.h>
#include <llvm/Support/SmallVectorMemoryBuffer.h>
#include <llvm/Support/raw_ostream.h>

#include <atomic>
#include <chrono>

#include "codegen/llvm/emitter.h"
#include "codegen/llvm/toolchain.h"

namespace gradloom::codegen {
namespace {

std::atomic<int64_t> compilations{0};

[[noreturn]] void failed(const std::string& what) { throw Error(ErrorCode::compile_failed, "llvm: " + what); }

template <class T>
T take(llvm::Expected<T> value) {
  if (!value) failed(llvm::toString(value.takeError()));
  return std::move(*value);
}

llvm::orc::LLJIT& jit(const Isa& isa) {
  // Never destroyed: handles may outlive static destruction.
  static llvm::orc::LLJIT* instance = [&] {
    llvm::orc::JITTargetMachineBuilder builder(Toolchain::of(isa).machine().getTargetTriple());
    std::unique_ptr<llvm::orc::LLJIT> made = take(llvm::orc::LLJITBuilder().setJITTargetMachineBuilder(std::move(builder)).setNumCompileThreads(0).create());
    made->getExecutionSession().setErrorReporter([](llvm::Error error) { llvm::consumeError(std::move(error)); });  // the caller reports
    return made.release();
  }();
  return *instance;
}

void verify(llvm::Module& module) {
  std::string message;
  llvm::raw_string_ostream stream(message);
  if (llvm::verifyModule(module, &stream)) failed("the module is malformed: " + message);
}

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

// A symbol's characters are free in ELF, but assembly and profilers want plain ones.
std::string symbol_of(const std::string& name) {
  std::string symbol;
  for (const char c : name) symbol += std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
  return symbol.empty() ? "kernel" : symbol;
}

std::unique_ptr<llvm::Module> emit(llvm::LLVMContext& context, const ir::Kernel& kernel, const Isa& isa, const std::string& symbol) {
  auto module = std::make_unique<llvm::Module>(kernel.name, context);
  llvm::TargetMachine& machine = Toolchain::of(isa).machine();
  module->setTargetTriple(machine.getTargetTriple());
  module->setDataLayout(machine.createDataLayout());
  Emitter(*module, isa).kernel(kernel, symbol);
  return module;
}

void discard_diagnostics(llvm::LLVMContext& context, std::string& error) {
  context.setDiagnosticHandlerCallBack(
      [](const llvm::DiagnosticInfo* info, void* to) {
        if (info->getSeverity() != llvm::DS_Error) return;
        llvm::raw_string_ostream stream(*static_cast<std::string*>(to));
        llvm::DiagnosticPrinterRawOStream printer(stream);
        info->print(printer);
      },
      &error);
}

}  // namespace

CompiledKernel compile(const ir::Kernel& lowered, const Isa& isa) {
  CompiledKernel result;
  guarded([&] {
    Toolchain& toolchain = Toolchain::of(isa);
    llvm::orc::LLJIT& loader = jit(isa);
    Stopwatch watch;
    llvm::LLVMContext context;
    std::string error;
    discard_diagnostics(context, error);
    const std::string symbol = symbol_of(lowered.name) + "." + std::to_string(compilations++);
    std::unique_ptr<llvm::Module> module = emit(context, lowered, isa, symbol);
#ifndef NDEBUG
    verify(*module);
#endif
    result.times.emit_ms = watch.lap_ms();
    toolchain.optimize(*module);
    result.times.optimize_ms = watch.lap_ms();
    llvm::SmallVector<char, 0> object;
    toolchain.object(*module, object);
    if (!error.empty()) failed(error);
    module.reset();
    result.times.codegen_ms = watch.lap_ms();
    result.code_bytes = static_cast<int64_t>(object.size());

    llvm::orc::ResourceTrackerSP tracker = loader.getMainJITDylib().createResourceTracker();
    auto buffer = std::make_unique<llvm::SmallVectorMemoryBuffer>(std::move(object), symbol, /*RequiresNullTerminator=*/false);
    if (llvm::Error e = loader.addObjectFile(tracker, std::move(buffer))) failed(llvm::toString(std::move(e)));
    result.code = std::shared_ptr<void>(nullptr, [tracker](void*) { llvm::consumeError(tracker->remove()); });
    result.function = take(loader.lookup(symbol)).toPtr<KernelFunction>();
    result.times.link_ms = watch.lap_ms();
  });
  return result;
}

std::string emit_llvm(const ir::Kernel& lowered, const Isa& isa, bool optimized) {
  std::string text;
  guarded([&] {
    llvm::LLVMContext context;
    std::unique_ptr<llvm::Module> module = emit(context, lowered, isa, symbol_of(lowered.name));
    verify(*module);
    if (optimized) Toolchain::of(isa).optimize(*module);
    llvm::raw_string_ostream(text) << *module;
  });
  return text;
}

std::string emit_assembly(const ir::Kernel& lowered, const Isa& isa) {
  std::string text;
  guarded([&] {
    llvm::LLVMContext context;
    std::string error;
    discard_diagnostics(context, error);
    std::unique_ptr<llvm::Module> module = emit(context, lowered, isa, symbol_of(lowered.name));
    verify(*module);
    Toolchain::of(isa).optimize(*module);
    text = Toolchain::of(isa).assembly(*module);
    if (!error.empty()) failed(error);
  });
  return text;
}

std::string llvm_version() { return LLVM_VERSION_STRING; }
int64_t compile_count() { return compilations; }

}  // namespace gradloom::codegen
