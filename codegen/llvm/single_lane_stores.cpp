#include "codegen/llvm/single_lane_stores.h"

#include <llvm/ADT/STLExtras.h>
#include <llvm/IR/Constants.h>
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/InstIterator.h>
#include <llvm/IR/IntrinsicInst.h>

#include <optional>

namespace gradloom::codegen {
namespace {

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

llvm::PreservedAnalyses SingleLaneStores::run(llvm::Function& function, llvm::FunctionAnalysisManager&) {
  bool changed = false;
  for (llvm::Instruction& instruction : llvm::make_early_inc_range(llvm::instructions(function))) {
    auto* store = llvm::dyn_cast<llvm::IntrinsicInst>(&instruction);
    if (!store || store->getIntrinsicID() != llvm::Intrinsic::masked_store) continue;
    llvm::Value *vector = store->getArgOperand(0), *pointer = store->getArgOperand(1);
    const std::optional<unsigned> lane = only_lane(store->getArgOperand(2));
    if (!lane) continue;
    llvm::IRBuilder<> builder(store);
    llvm::Value* element = builder.CreateExtractElement(vector, uint64_t{*lane});
    const int64_t offset = static_cast<int64_t>(*lane) * function.getDataLayout().getTypeStoreSize(element->getType());
    llvm::Value* at = builder.CreatePtrAdd(pointer, builder.getInt64(offset));
    const llvm::Align align = llvm::commonAlignment(store->getParamAlign(1).valueOrOne(), offset);
    builder.CreateAlignedStore(element, at, align)->setAAMetadata(store->getAAMetadata());
    store->eraseFromParent();
    changed = true;
  }
  return changed ? llvm::PreservedAnalyses::none() : llvm::PreservedAnalyses::all();
}

}  // namespace gradloom::codegen
