// The code generator's pass pipeline. LLVM's default serves code of any origin; kernels arrive vectorised, unrolled and
// with their addresses split, without significant calls, exceptions or debug information. The passes omitted here are
// most of a cold compile: loop strength reduction alone (with the scalar evolution it needs) took a third, and the
// machine scheduler a fifth, at the price of an extra shift and move in memory-bound loops.
#include <llvm/Analysis/BasicAliasAnalysis.h>
#include <llvm/Analysis/ScopedNoAliasAA.h>
#include <llvm/Analysis/TargetTransformInfo.h>
#include <llvm/CodeGen/CodeGenTargetMachineImpl.h>
#include <llvm/CodeGen/MachineModuleInfo.h>
#include <llvm/CodeGen/Passes.h>
#include <llvm/CodeGen/TargetPassConfig.h>

#include "codegen/llvm/toolchain.h"

namespace gradloom::codegen {
namespace {

void leave_out(llvm::TargetPassConfig& config) {
  const std::initializer_list<llvm::AnalysisID> passes{
      // Scheduling: the order of emission is kept; out-of-order cores hide latency.
      &llvm::MachineSchedulerID, &llvm::PostRASchedulerID,
      // Control flow: kernels are loops with few blocks.
      &llvm::EarlyTailDuplicateLegacyID, &llvm::TailDuplicateLegacyID, &llvm::EarlyIfConverterLegacyID,
      &llvm::ShrinkWrapID, &llvm::PostRAMachineSinkingID,
      // Rewrites that find nothing after the IR passes.
      &llvm::OptimizePHIsLegacyID, &llvm::MachineCombinerID, &llvm::LiveRangeShrinkID,
      &llvm::MachineLateInstrsCleanupID,
      // Features that kernels do not use.
      &llvm::StackColoringLegacyID, &llvm::LocalStackSlotAllocationID, &llvm::XRayInstrumentationID,
      &llvm::FEntryInserterID, &llvm::PatchableFunctionID, &llvm::FuncletLayoutID, &llvm::StackMapLivenessID,
      &llvm::LiveDebugValuesID, &llvm::MachineSanitizerBinaryMetadataID, &llvm::RemoveLoadsIntoFakeUsesID,
      &llvm::FixupStatepointCallerSavedID, &llvm::ImplicitNullChecksID, &llvm::StackFrameLayoutAnalysisPassID};
  for (const llvm::AnalysisID id : passes) config.disablePass(id);
}

}  // namespace

void add_code_generator(llvm::legacy::PassManager& manager, llvm::TargetMachine& machine, llvm::raw_pwrite_stream& out,
                        llvm::CodeGenFileType type) {
  // Every target with a code generator derives from it.
  auto& target = static_cast<llvm::CodeGenTargetMachineImpl&>(machine);
  const auto refuse = [](bool failed) {
    if (failed) throw Error(ErrorCode::compile_failed, "llvm: the target emits no machine code");
  };
  auto* modules = new llvm::MachineModuleInfoWrapperPass(&target);
  llvm::MCContext& context = modules->getMMI().getContext();
  llvm::TargetPassConfig* config = target.createPassConfig(manager);
  config->setDisableVerify(true);
  leave_out(*config);
  manager.add(config);
  manager.add(modules);

  manager.add(llvm::createTargetTransformInfoWrapperPass(target.getTargetIRAnalysis()));
  manager.add(llvm::createPreISelIntrinsicLoweringPass());
  manager.add(llvm::createScopedNoAliasAAWrapperPass());
  manager.add(llvm::createBasicAAWrapperPass());
  // At level None, the IR passes are those that legalisation needs: atomics, masked memory, reductions.
  const llvm::CodeGenOptLevel level = target.getOptLevel();
  target.setOptLevel(llvm::CodeGenOptLevel::None);
  config->addIRPasses();
  target.setOptLevel(level);
  config->addCodeGenPrepare();  // sinks addresses to their uses: selection sees one block at a time
  config->addISelPrepare();
  refuse(config->addInstSelector());
  manager.add(llvm::Pass::createPass(&llvm::FinalizeISelID));
  config->addMachinePasses();
  config->setInitialized();
  refuse(target.addAsmPrinter(manager, out, nullptr, type, context));
  manager.add(llvm::createFreeMachineFunctionPass());
}

}  // namespace gradloom::codegen
