// The loader: LLVM's JITLink, straight into this process's memory, without a JIT session or its symbol tables. A
// kernel's object defines one function and has next to no external references, so loading a cached object needs no
// compiler and takes a fraction of a millisecond.
#include <dlfcn.h>
#include <llvm/ExecutionEngine/JITLink/JITLink.h>
#include <llvm/ExecutionEngine/Orc/Shared/ExecutorSymbolDef.h>
#include <llvm/ExecutionEngine/Orc/SymbolStringPool.h>

#include "codegen/llvm/code_memory.h"
#include "codegen/llvm/compiler.h"
#include "codegen/llvm/toolchain.h"

namespace gradloom::codegen {
namespace {

// The outcome of one link. The linker runs on this thread and is done when `link` returns.
struct Linked {
  std::string error;
  llvm::orc::ExecutorAddr function;
  std::vector<CodeSymbol> symbols;
  bool finalized = false;
};

class Context final : public llvm::jitlink::JITLinkContext {
 public:
  Context(Linked& linked, CodeMemory& memory, const std::string& symbol)
      : JITLinkContext(nullptr), linked_(linked), memory_(memory), symbol_(symbol) {}

  CodeMemory& getMemoryManager() override { return memory_; }
  void notifyFailed(llvm::Error error) override { linked_.error = llvm::toString(std::move(error)); }

  // Resolves symbols of the C library, such as memset.
  void lookup(const LookupMap& symbols, std::unique_ptr<llvm::jitlink::JITLinkAsyncLookupContinuation> next) override {
    llvm::jitlink::AsyncLookupResult found;
    for (const auto& [name, flags] : symbols) {
      void* const address = dlsym(RTLD_DEFAULT, (*name).str().c_str());
      if (!address && flags == llvm::jitlink::SymbolLookupFlags::RequiredSymbol) {
        return next->run(llvm::make_error<llvm::StringError>("symbol " + (*name).str() + " is not in this process",
                                                             llvm::inconvertibleErrorCode()));
      }
      found[name] = {llvm::orc::ExecutorAddr::fromPtr(address), llvm::JITSymbolFlags::Exported};
    }
    next->run(std::move(found));
  }

  llvm::Error notifyResolved(llvm::jitlink::LinkGraph& graph) override {
    for (const llvm::jitlink::Symbol* symbol : graph.defined_symbols()) {
      if (!symbol->hasName() || !symbol->isCallable()) continue;
      if (*symbol->getName() == symbol_) linked_.function = symbol->getAddress();
      linked_.symbols.push_back({(*symbol->getName()).str(), symbol->getAddress().getValue(), symbol->getSize()});
    }
    if (linked_.function) return llvm::Error::success();
    return llvm::make_error<llvm::StringError>("the object has no function " + symbol_, llvm::inconvertibleErrorCode());
  }
  void notifyFinalized(CodeMemory::FinalizedAlloc memory) override {
    memory.release();  // the pages are taken
    linked_.finalized = true;
  }

 private:
  Linked& linked_;
  CodeMemory& memory_;
  const std::string& symbol_;
};

}  // namespace

CompiledKernel load(std::string_view object, const std::string& kernel_name) {
  CompiledKernel result;
  guarded(bytes_to_load, [&](LlvmWork&) {
    Stopwatch watch;
    const std::string symbol = symbol_of(kernel_name);
    const auto failed = [&](const std::string& what) { throw Error(ErrorCode::compile_failed, "llvm: " + what); };
    // The linker's lookup list outlives its graph, so the names are owned here.
    const auto names = std::make_shared<llvm::orc::SymbolStringPool>();
    auto graph =
        llvm::jitlink::createLinkGraphFromObject({llvm::StringRef(object.data(), object.size()), symbol}, names);
    if (!graph) failed(llvm::toString(graph.takeError()));
    CodeMemory memory;
    Linked linked;
    llvm::jitlink::link(std::move(*graph), std::make_unique<Context>(linked, memory, symbol));
    if (memory.refused()) throw *memory.refused();
    if (!linked.error.empty()) failed(linked.error);
    if (!linked.finalized) failed("the object was not linked");
    result.code = std::make_shared<CodePages>(memory.take());
    result.function = linked.function.toPtr<KernelFunction>();
    result.symbols = std::move(linked.symbols);
    result.code_bytes = static_cast<int64_t>(object.size());
    result.times.link_ms = watch.lap_ms();
  });
  return result;
}

}  // namespace gradloom::codegen
