#pragma once
// Passes around a fault of LLVM 22's instruction combining. Private to this folder.
#include <llvm/IR/PassManager.h>

namespace gradloom::codegen {

// Combining folds a select into the masked load that is its arm, where both have one mask, and puts the new load where the select was: past stores that may
// have changed what it reads. Only a load of one use is folded, so loads of memory that the kernel may write get a second use while it runs. Fixed after
// LLVM 22 (llvm/llvm-project#216730).
struct PinMaskedLoads : llvm::PassInfoMixin<PinMaskedLoads> {
  llvm::PreservedAnalyses run(llvm::Function& function, llvm::FunctionAnalysisManager& analyses);
};

// Takes those uses away again.
struct UnpinMaskedLoads : llvm::PassInfoMixin<UnpinMaskedLoads> {
  llvm::PreservedAnalyses run(llvm::Function& function, llvm::FunctionAnalysisManager& analyses);
};

}  // namespace gradloom::codegen
