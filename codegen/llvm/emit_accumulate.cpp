// Accumulates: buffer[index] = buffer[index] op value, in lane order. Lanes proved distinct are updated as one vector.
#include <functional>

#include "codegen/llvm/emitter.h"

namespace gradloom::codegen {

using llvm::Value;

Value* Emitter::apply(ir::AccumulateOp op, DType dtype, Value* old, Value* v, Value* factor) {
  switch (op) {
    case ir::AccumulateOp::add:
      return dtype == DType::boolean ? builder_.CreateXor(old, v) : binary(ir::BinaryOp::add, dtype, old, v);
    case ir::AccumulateOp::mul:
      return binary(ir::BinaryOp::mul, dtype, old, v);
    case ir::AccumulateOp::min:
      return binary(ir::BinaryOp::min, dtype, old, v);
    case ir::AccumulateOp::max:
      return binary(ir::BinaryOp::max, dtype, old, v);
    case ir::AccumulateOp::fma:
      return fused(v, factor, old);
  }
  throw Error(ErrorCode::internal, "emit: an unknown accumulate");
}

void Emitter::accumulate_at(const ir::Accumulate& n, const Address& a, Value* pointer, Value* v, Value* factor) {
  if (n.atomic) return accumulate_atomic(n, pointer, v, factor);
  const llvm::Align align = pointer == a.pointer ? alignment(a) : llvm::Align(1);
  Value* old = load_at(a, pointer, memory_type(a.buffer->dtype), align);
  store_at(a, pointer, apply(n.op, a.buffer->dtype, old, v, factor), align);
}

// A compare-and-swap loop on the element's bits.
void Emitter::accumulate_atomic(const ir::Accumulate& n, Value* pointer, Value* v, Value* factor) {
  const DType dtype = n.buffer->dtype;
  llvm::Type* bits = builder_.getIntNTy(size_of(dtype) * 8);
  llvm::Type* type = memory_type(dtype);
  const llvm::Align align(size_of(dtype));
  llvm::LoadInst* first = builder_.CreateAlignedLoad(bits, pointer, align);
  first->setAtomic(llvm::AtomicOrdering::Monotonic);
  llvm::BasicBlock* before = builder_.GetInsertBlock();
  llvm::BasicBlock* loop = llvm::BasicBlock::Create(context_, "atomic", frame_->function);
  llvm::BasicBlock* after = llvm::BasicBlock::Create(context_, "atomic.done", frame_->function);
  builder_.CreateBr(loop);
  builder_.SetInsertPoint(loop);
  llvm::PHINode* seen = builder_.CreatePHI(bits, 2);
  seen->addIncoming(first, before);
  Value* old = from_memory(builder_.CreateBitCast(seen, type), dtype);
  Value* next = builder_.CreateBitCast(to_memory(apply(n.op, dtype, old, v, factor), dtype), bits);
  Value* swap = builder_.CreateAtomicCmpXchg(pointer, seen, next, align, llvm::AtomicOrdering::Monotonic,
                                             llvm::AtomicOrdering::Monotonic);
  seen->addIncoming(builder_.CreateExtractValue(swap, 0), builder_.GetInsertBlock());
  builder_.CreateCondBr(builder_.CreateExtractValue(swap, 1), after, loop);
  builder_.SetInsertPoint(after);
}

// All lanes update the same element: an in-order reduction in a register.
void Emitter::accumulate_one_place(const ir::Accumulate& n, const Address& a, Value* v, Value* factor, Value* mask) {
  const DType dtype = a.buffer->dtype;
  const auto update = [&] {
    Value* sum = load_at(a, a.pointer, memory_type(dtype), alignment(a));
    for (uint64_t i = 0; i < static_cast<uint64_t>(a.lanes); ++i) {
      Value* f = factor ? builder_.CreateExtractElement(factor, i) : nullptr;
      Value* next = apply(n.op, dtype, sum, builder_.CreateExtractElement(v, i), f);
      sum = mask ? builder_.CreateSelect(builder_.CreateExtractElement(mask, i), next, sum) : next;
    }
    store_at(a, a.pointer, sum, alignment(a));
  };
  if (!mask) return update();
  when(any(mask), update);
}

void Emitter::accumulate_lanes(const ir::Accumulate& n, const Address& a, Value* v, Value* factor, Value* mask) {
  const auto one_by_one = [&] {
    for (int i = 0; i < a.lanes; ++i) {
      Value* f = factor ? builder_.CreateExtractElement(factor, static_cast<uint64_t>(i)) : nullptr;
      accumulate_at(n, a, lane_pointer(a, i), builder_.CreateExtractElement(v, static_cast<uint64_t>(i)), f);
    }
  };
  if (!mask) return one_by_one();
  const DType dtype = a.buffer->dtype;
  when(
      all(mask), one_by_one,
      [&] {
        llvm::Type* element = memory_type(dtype);
        Value* values = spill(to_memory(v, dtype));
        Value* factors = factor ? spill(factor) : nullptr;
        masked_lanes(a, mask, [&](Value* lane, Value* pointer) {
          Value* f = factors ? slot_lane(factors, element, lane) : nullptr;
          accumulate_at(n, a, pointer, from_memory(slot_lane(values, element, lane), dtype), f);
        });
      },
      true);
}

void Emitter::emit(const ir::Accumulate& n) {
  Value* mask = n.guard ? value(n.guard) : nullptr;
  if (const auto* known = mask ? llvm::dyn_cast<llvm::Constant>(mask) : nullptr) {
    if (known->isNullValue()) return;
    if (known->isAllOnesValue()) mask = nullptr;
  }
  Value* v = value(n.value);
  Value* factor = n.factor ? value(n.factor) : nullptr;
  const Type type = n.value.type();
  const Address a = address(n.buffer, n.index, type.lanes);
  if (type.lanes == 1) {
    if (!mask) return accumulate_at(n, a, a.pointer, v, factor);
    return when(mask, [&] { accumulate_at(n, a, a.pointer, v, factor); });
  }
  if (n.atomic) return accumulate_lanes(n, a, v, factor, mask);
  const std::optional<int64_t> stride = a.constant_stride();
  if (stride == 0) return accumulate_one_place(n, a, v, factor, mask);
  const bool dense = stride == 1 || stride == -1;
  const bool together = a.distinct && (hardware_scatter(a) || (dense && (!mask || hardware_mask(a))));
  if (!together) return accumulate_lanes(n, a, v, factor, mask);
  Value* old = load_vector(a, type, mask, mask ? llvm::Constant::getNullValue(type_of(type)) : nullptr);
  store_vector(a, apply(n.op, type.dtype, old, v, factor), mask, false);
}

}  // namespace gradloom::codegen
