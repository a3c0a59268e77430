#include "codegen/llvm/bit_selects.h"

#include <llvm/IR/Constants.h>
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/InstIterator.h>
#include <llvm/IR/PatternMatch.h>

namespace gradloom::codegen {

llvm::PreservedAnalyses PinBitSelects::run(llvm::Function& function, llvm::FunctionAnalysisManager&) {
  using namespace llvm::PatternMatch;
  bool changed = false;
  for (llvm::Instruction& instruction : llvm::instructions(function)) {
    llvm::Constant *kept = nullptr, *taken = nullptr;
    const auto bits_of_two = m_Or(m_And(m_Value(), m_Constant(kept)), m_And(m_Value(), m_Constant(taken)));
    if (!instruction.getType()->isVectorTy() || !match(&instruction, bits_of_two) || llvm::ConstantExpr::getNot(kept) != taken) continue;
    llvm::IRBuilder<>(instruction.getNextNode()).CreateIntrinsic(llvm::Intrinsic::fake_use, {&instruction});
    changed = true;
  }
  return changed ? llvm::PreservedAnalyses::none() : llvm::PreservedAnalyses::all();
}

}  // namespace gradloom::codegen
