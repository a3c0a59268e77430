#include "codegen/llvm/toolchain.h"

#include <llvm/MC/TargetRegistry.h>
#include <llvm/Support/ErrorHandling.h>
#include <llvm/Support/TargetSelect.h>
#include <llvm/Support/raw_ostream.h>
#include <llvm/TargetParser/Host.h>
#include <llvm/Transforms/InstCombine/InstCombine.h>
#include <llvm/Transforms/Scalar/EarlyCSE.h>
#include <llvm/Transforms/Scalar/LICM.h>
#include <llvm/Transforms/Scalar/LoopPassManager.h>
#include <llvm/Transforms/Scalar/SROA.h>
#include <llvm/Transforms/Scalar/SimplifyCFG.h>

#include <map>

#include "codegen/llvm/llvm_faults.h"
#include "support/per_thread.h"

namespace gradloom::codegen {
namespace {

thread_local int guard_depth = 0;

// Inside a compilation a fatal error unwinds to `guarded`; elsewhere (an embedder's own LLVM) it remains fatal.
void on_fatal_error(void*, const char* reason, bool) {
  if (guard_depth > 0) throw Error(ErrorCode::compile_failed, std::string("llvm: ") + reason);
}

// LLVM may outlive this library: the handler is removed when the library is unloaded.
struct Llvm {
  Llvm() {
    llvm::InitializeNativeTarget();
    llvm::InitializeNativeTargetAsmPrinter();
    llvm::install_fatal_error_handler(on_fatal_error);
  }
  ~Llvm() { llvm::remove_fatal_error_handler(); }
};

void initialize() { static const Llvm llvm; }

struct Toolchains {
  std::map<std::string, std::unique_ptr<Toolchain>> by_isa;
};

}  // namespace

void guarded(const std::function<void()>& body) {
  struct Depth {
    Depth() { ++guard_depth; }
    ~Depth() { --guard_depth; }
  } depth;
  try {
    body();
  } catch (...) {
    Toolchain::discard();
    throw;
  }
}

Toolchain& Toolchain::of(const Isa& isa) {
  std::unique_ptr<Toolchain>& found = per_thread<Toolchains>().by_isa[isa.cpu + isa.features];
  if (!found || found->worn()) found = std::make_unique<Toolchain>(isa);
  return *found;
}

void Toolchain::discard() { per_thread<Toolchains>().by_isa.clear(); }

Toolchain::Toolchain(const Isa& isa) {
  initialize();
  const llvm::Triple triple(llvm::sys::getProcessTriple());
  std::string error;
  const llvm::Target* target = llvm::TargetRegistry::lookupTarget(triple, error);
  if (!target) throw Error(ErrorCode::compile_failed, "llvm: " + error);
  llvm::TargetOptions options;
  options.AllowFPOpFusion = llvm::FPOpFusion::Strict;
  // The loader allocates an object's sections contiguously and reaches other code through stubs, so the small code
  // model applies.
  machine_.reset(target->createTargetMachine(triple, isa.cpu, isa.features, options, llvm::Reloc::PIC_,
                                             llvm::CodeModel::Small, llvm::CodeGenOptLevel::Default, true));
  if (!machine_) throw Error(ErrorCode::compile_failed, "llvm: no machine for cpu " + isa.cpu);

  llvm::PassBuilder builder(machine_.get());
  builder.registerModuleAnalyses(modules_);
  builder.registerCGSCCAnalyses(calls_);
  builder.registerFunctionAnalyses(functions_);
  builder.registerLoopAnalyses(loops_);
  builder.crossRegisterProxies(loops_, functions_, calls_, modules_);
  // Short on purpose: the vector code is already emitted; the remaining work is addresses, loop invariants and
  // accumulators in memory.
  passes_.addPass(llvm::SROAPass(llvm::SROAOptions::ModifyCFG));
  passes_.addPass(llvm::EarlyCSEPass());
  passes_.addPass(PinMaskedLoads());
  passes_.addPass(llvm::InstCombinePass());
  passes_.addPass(UnpinMaskedLoads());
  passes_.addPass(llvm::createFunctionToLoopPassAdaptor(llvm::LICMPass(llvm::LICMOptions()), /*UseMemorySSA=*/true));
  passes_.addPass(llvm::EarlyCSEPass(/*UseMemorySSA=*/true));
  passes_.addPass(llvm::SimplifyCFGPass());
  passes_.addPass(SingleLaneStores());  // last: masks have folded to constants by now
  passes_.addPass(PinBitSelects());

  add_code_generator(generator_, *machine_, stream_, llvm::CodeGenFileType::ObjectFile);
}

void Toolchain::optimize(llvm::Module& module) {
  for (llvm::Function& f : module)
    if (!f.isDeclaration()) passes_.run(f, functions_);
  loops_.clear();
  functions_.clear();
  calls_.clear();
  modules_.clear();
}

void Toolchain::object(llvm::Module& module, llvm::SmallVectorImpl<char>& out) {
  object_.clear();
  generator_.run(module);
  out.assign(object_.begin(), object_.end());
  generated_bytes_ += out.size();
}

std::string Toolchain::assembly(llvm::Module& module) {
  llvm::SmallString<4096> text;
  llvm::raw_svector_ostream stream(text);
  llvm::legacy::PassManager manager;
  add_code_generator(manager, *machine_, stream, llvm::CodeGenFileType::AssemblyFile);
  manager.run(module);
  return text.str().str();
}

}  // namespace gradloom::codegen
