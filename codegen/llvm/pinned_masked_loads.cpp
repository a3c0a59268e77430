#include "codegen/llvm/pinned_masked_loads.h"

#include <llvm/ADT/STLExtras.h>
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/InstIterator.h>
#include <llvm/IR/IntrinsicInst.h>

namespace gradloom::codegen {
namespace {

bool is_call_of(const llvm::Instruction& instruction, llvm::Intrinsic::ID id) {
  const auto* call = llvm::dyn_cast<llvm::IntrinsicInst>(&instruction);
  return call && call->getIntrinsicID() == id;
}

llvm::PreservedAnalyses changed_if(bool changed) {
  if (!changed) return llvm::PreservedAnalyses::all();
  llvm::PreservedAnalyses preserved;
  preserved.preserveSet<llvm::CFGAnalyses>();
  return preserved;
}

}  // namespace

llvm::PreservedAnalyses PinMaskedLoads::run(llvm::Function& function, llvm::FunctionAnalysisManager&) {
  bool changed = false;
  for (llvm::Instruction& load : llvm::instructions(function)) {
    if (!is_call_of(load, llvm::Intrinsic::masked_load) || load.hasMetadata(llvm::LLVMContext::MD_invariant_load)) continue;
    llvm::IRBuilder<>(load.getNextNode()).CreateIntrinsic(llvm::Intrinsic::fake_use, {&load});
    changed = true;
  }
  return changed_if(changed);
}

llvm::PreservedAnalyses UnpinMaskedLoads::run(llvm::Function& function, llvm::FunctionAnalysisManager&) {
  bool changed = false;
  for (llvm::Instruction& use : llvm::make_early_inc_range(llvm::instructions(function))) {
    if (!is_call_of(use, llvm::Intrinsic::fake_use)) continue;
    use.eraseFromParent();
    changed = true;
  }
  return changed_if(changed);
}

}  // namespace gradloom::codegen
