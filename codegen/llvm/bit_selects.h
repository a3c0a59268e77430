#pragma once
// A pass around a fault of LLVM 22's x86 instruction selection. Private to this folder.
#include <llvm/IR/PassManager.h>

namespace gradloom::codegen {

// (x & c) | (y & ~c) of vectors, c a constant, is one instruction of ternary logic (AVX-512). Where selection makes it one with a load and also masked, by a
// select that is its only use, it gives the operands in the wrong order; so it gets a second use, which emits nothing. Fixed after LLVM 22
// (llvm/llvm-project#209782).
struct PinBitSelects : llvm::PassInfoMixin<PinBitSelects> {
  llvm::PreservedAnalyses run(llvm::Function& function, llvm::FunctionAnalysisManager& analyses);
};

}  // namespace gradloom::codegen
