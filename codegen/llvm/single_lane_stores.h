#pragma once
// A pass around a fault of LLVM 22's x86 instruction selection. Private to this folder.
#include <llvm/IR/PassManager.h>

namespace gradloom::codegen {

// Stores of one lane, known by a constant mask, become scalar stores. Selection does the same later, but after it has merged a truncation into the store
// (AVX-512), and then writes the element as wide as it was before: four bytes for an i16. Fixed after LLVM 22 (llvm/llvm-project#179489).
struct SingleLaneStores : llvm::PassInfoMixin<SingleLaneStores> {
  llvm::PreservedAnalyses run(llvm::Function& function, llvm::FunctionAnalysisManager& analyses);
};

}  // namespace gradloom::codegen
