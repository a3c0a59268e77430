#include "codegen/llvm/toolchain.h"

#include <llvm/Analysis/TargetLibraryInfo.h>
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/OptBisect.h>
#include <llvm/IR/PrintPasses.h>
#include <llvm/MC/TargetRegistry.h>
#include <llvm/Support/ErrorHandling.h>
#include <llvm/Support/TargetSelect.h>
#include <llvm/Support/VirtualFileSystem.h>
#include <llvm/Support/raw_ostream.h>
#include <llvm/TargetParser/Host.h>
#include <llvm/Transforms/InstCombine/InstCombine.h>
#include <llvm/Transforms/Scalar/EarlyCSE.h>
#include <llvm/Transforms/Scalar/LICM.h>
#include <llvm/Transforms/Scalar/LoopPassManager.h>
#include <llvm/Transforms/Scalar/SROA.h>
#include <llvm/Transforms/Scalar/SimplifyCFG.h>

#include <atomic>
#include <bit>
#include <chrono>
#include <cstdlib>
#include <map>

#include "codegen/llvm/llvm_faults.h"
#include "support/fork.h"
#include "support/gate.h"
#include "support/lasting.h"
#include "support/per_thread.h"
#include "support/stack.h"

namespace gradloom::codegen {
namespace {

thread_local constinit int guard_depth = 0;

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
  Llvm(const Llvm&) = delete;
  Llvm& operator=(const Llvm&) = delete;
  ~Llvm() { llvm::remove_fatal_error_handler(); }
};

void initialize() {
  static constinit Lasting<const Llvm> llvm;
  *llvm;
}

// Compilations, which the end of the process waits for: it destroys LLVM's static objects. None begins afterwards.
constinit Gate gate;

// Not for ever: a signal's handler may call exit while its thread holds what a compilation needs.
void end_compiling() {
  note_process_end();
  gate.close(guard_depth > 0, std::chrono::minutes(1));
}

class Compiling {
 public:
  Compiling() {
    if (guard_depth == 0 && !gate.enter())
      throw Error(ErrorCode::unsupported, "llvm: the process is ending; nothing more is compiled");
    ++guard_depth;
  }
  ~Compiling() {
    if (--guard_depth > 0) return;
    // What LLVM has made meanwhile is destroyed before handlers that were registered earlier are run. Few compilations
    // in, it makes no more.
    static constinit std::atomic<uint32_t> so_far{0};
    if (std::has_single_bit(++so_far)) std::atexit(end_compiling);
    gate.leave();
  }
  Compiling(const Compiling&) = delete;
  Compiling& operator=(const Compiling&) = delete;

 private:
  const NoFork no_fork_;
};

struct Toolchains {
  std::map<std::string, std::unique_ptr<Toolchain>> by_isa;
  ~Toolchains() {
    if (!gate.closed()) return;
    for (auto& [isa, toolchain] : by_isa) toolchain.release();  // they use what LLVM has destroyed
  }
};

}  // namespace

void guarded(const std::function<void()>& body) {
  const Compiling compiling;
  try {
    body();
  } catch (...) {
    Toolchain::discard();
    throw;
  }
}

// Most of LLVM's objects that are made as they are needed are asked for by name; some instructions are compiled for the
// others.
void prepare_to_compile() {
  static constinit Lasting<const bool> prepared;
  prepared.get([] {
    require_stack(compiler_stack_bytes, "llvm");
    guarded([] {
      std::atexit(end_compiling);
      llvm::vfs::getRealFileSystem();
      llvm::getGlobalPassGate();
      llvm::isPassInPrintList("");
      llvm::isFunctionInPrintList("");
      llvm::LibFunc memset;
      llvm::TargetLibraryInfoImpl(llvm::Triple(llvm::sys::getProcessTriple())).getLibFunc("memset", memset);
      std::atexit(end_compiling);
      Toolchain& toolchain = Toolchain::of(host_isa());
      llvm::LLVMContext context;
      llvm::Module module("prepare", context);
      module.setTargetTriple(toolchain.machine().getTargetTriple());
      module.setDataLayout(toolchain.machine().createDataLayout());
      llvm::IRBuilder<> builder(context);
      llvm::Type* const vector = llvm::FixedVectorType::get(builder.getFloatTy(), 4);
      auto* const type =
          llvm::FunctionType::get(builder.getVoidTy(), {builder.getPtrTy(), builder.getInt64Ty()}, false);
      auto* const function = llvm::Function::Create(type, llvm::Function::ExternalLinkage, "prepare", module);
      builder.SetInsertPoint(llvm::BasicBlock::Create(context, "entry", function));
      llvm::Value* const at = builder.CreateGEP(vector, function->getArg(0), function->getArg(1));
      builder.CreateStore(
          builder.CreateFAdd(builder.CreateLoad(vector, at), builder.CreateLoad(vector, function->getArg(0))), at);
      builder.CreateRetVoid();
      toolchain.optimize(module);
      llvm::SmallVector<char, 0> object;
      toolchain.object(module, object);
    });
    return true;
  });
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
