#pragma once
// Passes around faults of LLVM 22, each with the change that mends it later. Private to this folder.
#include <llvm/IR/PassManager.h>

namespace gradloom::codegen {

// Combining folds a select into the masked load that is its arm, where both have one mask, and puts the new load where
// the select was: past stores that may have changed what it reads. Only a load of one use is folded, so loads of memory
// that the kernel may write get a second use while it runs. Fixed after LLVM 22 (llvm/llvm-project#216730).
struct PinMaskedLoads : llvm::PassInfoMixin<PinMaskedLoads> {
  llvm::PreservedAnalyses run(llvm::Function& function, llvm::FunctionAnalysisManager& analyses);
};

// Takes those uses away again.
struct UnpinMaskedLoads : llvm::PassInfoMixin<UnpinMaskedLoads> {
  llvm::PreservedAnalyses run(llvm::Function& function, llvm::FunctionAnalysisManager& analyses);
};

// (x & c) | (y & ~c) of vectors, c a constant, is one instruction of ternary logic (AVX-512). Where selection makes it
// one with a load and also masked, by a select that is its only use, it gives the operands in the wrong order; so it
// gets a second use, which emits nothing. Fixed after LLVM 22 (llvm/llvm-project#209782).
struct PinBitSelects : llvm::PassInfoMixin<PinBitSelects> {
  llvm::PreservedAnalyses run(llvm::Function& function, llvm::FunctionAnalysisManager& analyses);
};

// Stores of one lane, known by a constant mask, become scalar stores. Selection does the same later, but after it has
// merged a truncation into the store (AVX-512), and then writes the element as wide as it was before: four bytes for an
// i16. Fixed after LLVM 22 (llvm/llvm-project#179489).
struct SingleLaneStores : llvm::PassInfoMixin<SingleLaneStores> {
  llvm::PreservedAnalyses run(llvm::Function& function, llvm::FunctionAnalysisManager& analyses);
};

}  // namespace gradloom::codegen
