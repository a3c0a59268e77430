// The loader: LLVM's JITLink, straight into this process's memory, without a JIT session or its symbol tables. A
// kernel's object defines one function and has next to no external references, so loading a cached object needs no
// compiler and takes a fraction of a millisecond.
#include <dlfcn.h>
#include <llvm/ExecutionEngine/JITLink/JITLink.h>
#include <llvm/ExecutionEngine/JITLink/JITLinkMemoryManager.h>
#include <llvm/ExecutionEngine/Orc/Shared/ExecutorSymbolDef.h>
#include <llvm/ExecutionEngine/Orc/SymbolStringPool.h>
#include <llvm/Support/Process.h>

#include <optional>

#include "codegen/llvm/compiler.h"
#include "codegen/llvm/toolchain.h"
#include "support/lasting.h"

namespace gradloom::codegen {
namespace {

using llvm::jitlink::JITLinkMemoryManager;

// Referenced by every kernel's code, so that it outlives the last of them.
std::shared_ptr<JITLinkMemoryManager> memory_manager() {
  static constinit Lasting<std::shared_ptr<JITLinkMemoryManager>> manager;
  return manager.get([]() -> std::shared_ptr<JITLinkMemoryManager> {
    return std::make_shared<llvm::jitlink::InProcessMemoryManager>(llvm::sys::Process::getPageSizeEstimate());
  });
}

class Code {
 public:
  Code(std::shared_ptr<JITLinkMemoryManager> manager, JITLinkMemoryManager::FinalizedAlloc memory)
      : manager_(std::move(manager)), memory_(std::move(memory)) {}
  ~Code() {
    const NoFork no_fork;  // the manager's lock
    llvm::consumeError(manager_->deallocate(std::move(memory_)));
  }
  Code(const Code&) = delete;
  Code& operator=(const Code&) = delete;

 private:
  std::shared_ptr<JITLinkMemoryManager> manager_;
  JITLinkMemoryManager::FinalizedAlloc memory_;
};

// The outcome of one link. The linker runs on this thread and is done when `link` returns.
struct Linked {
  std::string error;
  llvm::orc::ExecutorAddr function;
  std::vector<CodeSymbol> symbols;
  JITLinkMemoryManager::FinalizedAlloc memory;
};

class Context final : public llvm::jitlink::JITLinkContext {
 public:
  Context(Linked& linked, JITLinkMemoryManager& manager, const std::string& symbol)
      : JITLinkContext(nullptr), linked_(linked), manager_(manager), symbol_(symbol) {}

  JITLinkMemoryManager& getMemoryManager() override { return manager_; }
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
  void notifyFinalized(JITLinkMemoryManager::FinalizedAlloc memory) override { linked_.memory = std::move(memory); }

 private:
  Linked& linked_;
  JITLinkMemoryManager& manager_;
  const std::string& symbol_;
};

}  // namespace

CompiledKernel load(std::string_view object, const std::string& kernel_name) {
  CompiledKernel result;
  guarded([&] {
    Stopwatch watch;
    const std::string symbol = symbol_of(kernel_name);
    const auto failed = [&](const std::string& what) { throw Error(ErrorCode::compile_failed, "llvm: " + what); };
    // The linker's lookup list outlives its graph, so the names are owned here.
    const auto names = std::make_shared<llvm::orc::SymbolStringPool>();
    auto graph =
        llvm::jitlink::createLinkGraphFromObject({llvm::StringRef(object.data(), object.size()), symbol}, names);
    if (!graph) failed(llvm::toString(graph.takeError()));
    const std::shared_ptr<JITLinkMemoryManager> manager = memory_manager();
    Linked linked;
    llvm::jitlink::link(std::move(*graph), std::make_unique<Context>(linked, *manager, symbol));
    if (linked.memory) result.code = std::make_shared<Code>(manager, std::move(linked.memory));
    if (!linked.error.empty()) failed(linked.error);
    if (!result.code) failed("the object was not linked");
    result.function = linked.function.toPtr<KernelFunction>();
    result.symbols = std::move(linked.symbols);
    result.code_bytes = static_cast<int64_t>(object.size());
    result.times.link_ms = watch.lap_ms();
  });
  return result;
}

}  // namespace gradloom::codegen
