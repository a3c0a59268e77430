#pragma once
// Workarounds for bugs of LLVM 22, each with the upstream fix. Private to this folder.
#include <llvm/IR/PassManager.h>

namespace gradloom::codegen {

// InstCombine folds a select into the masked load that is its arm, where both have the same mask, and inserts the new
// load at the select: past stores that may have changed the memory it reads. Only a load with one use is folded, so
// loads of memory that the kernel may write get a second use while it runs. Fixed after LLVM 22
// (llvm/llvm-project#216730).
struct PinMaskedLoads : llvm::PassInfoMixin<PinMaskedLoads> {
  llvm::PreservedAnalyses run(llvm::Function& function, llvm::FunctionAnalysisManager& analyses);
};

// Removes those uses.
struct UnpinMaskedLoads : llvm::PassInfoMixin<UnpinMaskedLoads> {
  llvm::PreservedAnalyses run(llvm::Function& function, llvm::FunctionAnalysisManager& analyses);
};

// (x & c) | (y & ~c) of vectors, c a constant, is one instruction of ternary logic (AVX-512). Where selection folds it
// with a load and with a mask, from a select that is its only use, it emits the operands in the wrong order; so it gets
// a second use, which emits no code. Fixed after LLVM 22 (llvm/llvm-project#209782).
struct PinBitSelects : llvm::PassInfoMixin<PinBitSelects> {
  llvm::PreservedAnalyses run(llvm::Function& function, llvm::FunctionAnalysisManager& analyses);
};

// Masked stores of one lane, known by a constant mask, become scalar stores. Selection does the same later, but after
// it has merged a truncation into the store (AVX-512), and then stores the element at its width before truncation: four
// bytes for an i16. Fixed after LLVM 22 (llvm/llvm-project#179489).
struct SingleLaneStores : llvm::PassInfoMixin<SingleLaneStores> {
  llvm::PreservedAnalyses run(llvm::Function& function, llvm::FunctionAnalysisManager& analyses);
};

}  // namespace gradloom::codegen
