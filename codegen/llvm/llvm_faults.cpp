#include "codegen/llvm/llvm_faults.h"

#include <llvm/ADT/STLExtras.h>
#include <llvm/ADT/STLFunctionalExtras.h>
#include <llvm/IR/Constants.h>
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/InstIterator.h>
#include <llvm/IR/IntrinsicInst.h>
#include <llvm/IR/PatternMatch.h>

#include <optional>

namespace gradloom::codegen {
namespace {

bool is_call_of(const llvm::Instruction& instruction, llvm::Intrinsic::ID id) {
  const auto* call = llvm::dyn_cast<llvm::IntrinsicInst>(&instruction);
  return call && call->getIntrinsicID() == id;
}

// `change` returns whether it changed anything; it may erase the instruction and insert others after it.
llvm::PreservedAnalyses each_instruction(llvm::Function& function,
                                         llvm::function_ref<bool(llvm::Instruction&)> change) {
  bool changed = false;
  for (llvm::Instruction& instruction : llvm::make_early_inc_range(llvm::instructions(function)))
    changed |= change(instruction);
  if (!changed) return llvm::PreservedAnalyses::all();
  llvm::PreservedAnalyses preserved;
  preserved.preserveSet<llvm::CFGAnalyses>();
  return preserved;
}

// Adds a second use of a value, which emits no code.
bool pin(llvm::Instruction& value) {
  llvm::IRBuilder<>(value.getNextNode()).CreateIntrinsic(llvm::Intrinsic::fake_use, {&value});
  return true;
}

std::optional<unsigned> only_lane(const llvm::Value* mask) {
  const auto* constant = llvm::dyn_cast<llvm::Constant>(mask);
  const auto* type = llvm::dyn_cast<llvm::FixedVectorType>(mask->getType());
  std::optional<unsigned> lane;
  if (!constant || !type) return lane;
  for (unsigned i = 0; i < type->getNumElements(); ++i) {
    const llvm::Constant* element = constant->getAggregateElement(i);
    if (element && element->isNullValue()) continue;
    if (!element || !element->isOneValue() || lane) return std::nullopt;
    lane = i;
  }
  return lane;
}

}  // namespace

llvm::PreservedAnalyses PinMaskedLoads::run(llvm::Function& function, llvm::FunctionAnalysisManager&) {
  return each_instruction(function, [](llvm::Instruction& load) {
    return is_call_of(load, llvm::Intrinsic::masked_load) && !load.hasMetadata(llvm::LLVMContext::MD_invariant_load) &&
           pin(load);
  });
}

llvm::PreservedAnalyses UnpinMaskedLoads::run(llvm::Function& function, llvm::FunctionAnalysisManager&) {
  return each_instruction(function, [](llvm::Instruction& use) {
    if (!is_call_of(use, llvm::Intrinsic::fake_use)) return false;
    use.eraseFromParent();
    return true;
  });
}

llvm::PreservedAnalyses PinBitSelects::run(llvm::Function& function, llvm::FunctionAnalysisManager&) {
  return each_instruction(function, [](llvm::Instruction& instruction) {
    using namespace llvm::PatternMatch;
    llvm::Constant *kept = nullptr, *taken = nullptr;
    const auto bits_of_two = m_Or(m_And(m_Value(), m_Constant(kept)), m_And(m_Value(), m_Constant(taken)));
    return instruction.getType()->isVectorTy() && match(&instruction, bits_of_two) &&
           llvm::ConstantExpr::getNot(kept) == taken && pin(instruction);
  });
}

llvm::PreservedAnalyses SingleLaneStores::run(llvm::Function& function, llvm::FunctionAnalysisManager&) {
  return each_instruction(function, [&](llvm::Instruction& instruction) {
    if (!is_call_of(instruction, llvm::Intrinsic::masked_store)) return false;
    auto* store = llvm::cast<llvm::IntrinsicInst>(&instruction);
    llvm::Value *vector = store->getArgOperand(0), *pointer = store->getArgOperand(1);
    const std::optional<unsigned> lane = only_lane(store->getArgOperand(2));
    if (!lane) return false;
    llvm::IRBuilder<> builder(store);
    llvm::Value* element = builder.CreateExtractElement(vector, uint64_t{*lane});
    const int64_t offset = static_cast<int64_t>(*lane) * function.getDataLayout().getTypeStoreSize(element->getType());
    llvm::Value* at = builder.CreatePtrAdd(pointer, builder.getInt64(offset));
    const llvm::Align align = llvm::commonAlignment(store->getParamAlign(1).valueOrOne(), offset);
    builder.CreateAlignedStore(element, at, align)->setAAMetadata(store->getAAMetadata());
    store->eraseFromParent();
    return true;
  });
}

}  // namespace gradloom::codegen
