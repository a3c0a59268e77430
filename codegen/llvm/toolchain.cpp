#include "codegen/llvm/toolchain.h"

#include <fmt/format.h>
#include <llvm/Analysis/TargetLibraryInfo.h>
#include <llvm/CodeGen/TargetInstrInfo.h>
#include <llvm/CodeGen/TargetSubtargetInfo.h>
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/OptBisect.h>
#include <llvm/IR/PrintPasses.h>
#include <llvm/MC/TargetRegistry.h>
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
#include <sys/mman.h>

#include <atomic>
#include <bit>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <map>
#include <system_error>

#include "codegen/llvm/llvm_faults.h"
#include "codegen/llvm/llvm_handlers.h"
#include "support/fork.h"
#include "support/gate.h"
#include "support/lasting.h"
#include "support/per_thread.h"
#include "support/stack.h"

namespace gradloom::codegen {
namespace {

std::atomic<int64_t> abandoned{0};
constexpr size_t reserve_bytes = 64 << 10;  // of the heap, for what handles running out of it: errors are allocated
std::atomic<bool> compiled{false};          // a kernel, so LLVM's tables are there

void require_memory(size_t bytes) {
  void* const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED)
    throw Error(ErrorCode::resource_exhausted,
                fmt::format("llvm: {} KiB of memory, as LLVM may need, cannot be had: {}", bytes >> 10,
                            std::error_code(errno, std::generic_category()).message()));
  munmap(memory, bytes);
}

const llvm::Target& native_target() {
  static constinit Lasting<const llvm::Target*> target;
  return *target.get([] {
    llvm::InitializeNativeTarget();
    llvm::InitializeNativeTargetAsmPrinter();
    std::string error;
    const llvm::Target* found = llvm::TargetRegistry::lookupTarget(llvm::Triple(llvm::sys::getProcessTriple()), error);
    if (!found) throw Error(ErrorCode::compile_failed, "llvm: " + error);
    return found;
  });
}

thread_local constinit int guard_depth = 0;

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

// The first kernel takes less than 2 MiB with all of LLVM's tables.
size_t bytes_to_compile() { return compiled ? size_t{1} << 20 : size_t{4} << 20; }

void guarded(size_t bytes, const std::function<void(LlvmWork& work)>& body) {
  const Compiling compiling;
  require_memory(bytes);
  const LlvmHandlers handlers;
  auto work = std::make_unique<LlvmWork>();
  auto reserve = std::make_unique<char[]>(reserve_bytes);
  const auto abandon = [&](ErrorCode code, const std::string& what) {
    reserve.reset();
    (void)work.release();
    Toolchain::abandon();
    ++abandoned;
    throw Error(code, what);
  };
  try {
    body(*work);
  } catch (const LlvmFailure& failure) {
    abandon(failure.code, failure.message);
  } catch (const std::bad_alloc&) {
    abandon(ErrorCode::resource_exhausted, "llvm: out of memory");
  } catch (...) {
    Toolchain::discard();
    throw;
  }
}

int64_t abandoned_compilations() { return abandoned; }

// Most of LLVM's objects that are made as they are needed are asked for by name; some instructions are compiled for the
// others.
void prepare_to_compile() {
  static constinit Lasting<const bool> prepared;
  prepared.get([] {
    require_stack(compiler_stack_bytes, "llvm");
    guarded(bytes_to_compile(), [](LlvmWork& work) {
      std::atexit(end_compiling);
      llvm::vfs::getRealFileSystem();
      llvm::getGlobalPassGate();
      llvm::isPassInPrintList("");
      llvm::isFunctionInPrintList("");
      llvm::LibFunc memset;
      llvm::TargetLibraryInfoImpl(llvm::Triple(llvm::sys::getProcessTriple())).getLibFunc("memset", memset);
      std::atexit(end_compiling);
      Toolchain& toolchain = Toolchain::of(host_isa());
      work.context = std::make_unique<llvm::LLVMContext>();
      work.module = std::make_unique<llvm::Module>("prepare", *work.context);
      llvm::LLVMContext& context = *work.context;
      llvm::Module& module = *work.module;
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
      // The table of loads that fold into instructions, read by the register allocator.
      toolchain.machine().getSubtargetImpl(*function)->getInstrInfo()->getOpcodeAfterMemoryUnfold(
          0, /*UnfoldLoad=*/true, /*UnfoldStore=*/false);
      toolchain.object(module, object);
      work.module.reset();
    });
    return true;
  });
}

Toolchain& Toolchain::of(const Isa& isa) {
  std::unique_ptr<Toolchain>& found = per_thread<Toolchains>().by_isa[isa.cpu + isa.features];
  if (found && !found->worn()) return *found;
  found = std::make_unique<Toolchain>();
  found->set_up(isa);
  return *found;
}

void Toolchain::discard() { per_thread<Toolchains>().by_isa.clear(); }

void Toolchain::abandon() {
  for (auto& [isa, toolchain] : per_thread<Toolchains>().by_isa) (void)toolchain.release();
}

void Toolchain::set_up(const Isa& isa) {
  const llvm::Triple triple(llvm::sys::getProcessTriple());
  llvm::TargetOptions options;
  options.AllowFPOpFusion = llvm::FPOpFusion::Strict;
  // The loader allocates an object's sections contiguously and reaches other code through stubs, so the small code
  // model applies.
  machine_.reset(native_target().createTargetMachine(triple, isa.cpu, isa.features, options, llvm::Reloc::PIC_,
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
  compiled = true;
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
