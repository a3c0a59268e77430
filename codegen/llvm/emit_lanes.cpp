// Vector accesses: dense, reversed, uniform, strided, gathered. Masked accesses use an instruction where the machine
// has one, else a fast path for the full mask and a loop over the set lanes for partial masks (tails: rare).
#include <functional>

#include "codegen/llvm/emitter.h"

namespace gradloom::codegen {

using llvm::Value;

namespace {
std::vector<int> reversed(int lanes) {
  std::vector<int> order(lanes);
  for (int i = 0; i < lanes; ++i) order[i] = lanes - 1 - i;
  return order;
}
// Strided loads of up to this stride load whole vectors and shuffle: faster than a gather where that is one
// instruction.
constexpr int most_pieces = 4;
}  // namespace

Value* Emitter::lane_pointer(const Address& a, int lane) {
  Value* offset = a.vector ? builder_.CreateExtractElement(a.vector, static_cast<uint64_t>(lane)) : nullptr;
  if (a.stride && lane != 0) offset = add(offset, builder_.CreateMul(a.stride, i64(lane)));
  return offset ? builder_.CreateGEP(memory_type(a.buffer->dtype), a.pointer, offset) : a.pointer;
}

Value* Emitter::lane_pointers(const Address& a) {
  Value* offsets = a.vector;
  if (a.stride) {
    std::vector<llvm::Constant*> steps;
    for (int i = 0; i < a.lanes; ++i) steps.push_back(i64(i));
    offsets = add(offsets,
                  builder_.CreateMul(llvm::ConstantVector::get(steps), builder_.CreateVectorSplat(a.lanes, a.stride)));
  }
  return builder_.CreateGEP(memory_type(a.buffer->dtype), a.pointer, offsets);
}

bool Emitter::hardware_mask(const Address& a) const {
  const int size = size_of(a.buffer->dtype);
  return size >= 4 ? machine_.masks : machine_.small_masks;
}

bool Emitter::hardware_scatter(const Address& a) const {
  return machine_.scatter && size_of(a.buffer->dtype) >= 4 && a.constant_stride() != 0;
}

Value* Emitter::spill(Value* v) {
  llvm::AllocaInst* slot = entry_alloca(v->getType(), 1, llvm::Align(64), "lanes");
  builder_.CreateAlignedStore(v, slot, llvm::Align(64));
  return slot;
}

Value* Emitter::slot_lane(Value* slot, llvm::Type* element, Value* lane) {
  return builder_.CreateAlignedLoad(element, builder_.CreateGEP(element, slot, lane),
                                    llvm::Align(module_.getDataLayout().getTypeStoreSize(element)));
}

void Emitter::masked_lanes(const Address& a, Value* mask, const std::function<void(Value*, Value*)>& body) {
  Value* offsets = a.vector ? spill(a.vector) : nullptr;
  llvm::Type* type = builder_.getInt64Ty();
  Value* bits = builder_.CreateZExtOrTrunc(builder_.CreateBitCast(mask, builder_.getIntNTy(a.lanes)), type);
  llvm::BasicBlock* before = builder_.GetInsertBlock();
  llvm::BasicBlock* loop = llvm::BasicBlock::Create(context_, "lanes", frame_->function);
  llvm::BasicBlock* after = llvm::BasicBlock::Create(context_, "lanes.done", frame_->function);
  builder_.CreateCondBr(builder_.CreateICmpEQ(bits, i64(0)), after, loop);
  builder_.SetInsertPoint(loop);
  llvm::PHINode* left = builder_.CreatePHI(type, 2);
  left->addIncoming(bits, before);
  Value* lane = builder_.CreateBinaryIntrinsic(llvm::Intrinsic::cttz, left, builder_.getTrue());
  Value* offset = offsets ? slot_lane(offsets, type, lane) : nullptr;
  if (a.stride) offset = add(offset, builder_.CreateMul(a.stride, lane));
  body(lane, offset ? builder_.CreateGEP(memory_type(a.buffer->dtype), a.pointer, offset) : a.pointer);
  Value* next = builder_.CreateAnd(left, builder_.CreateSub(left, i64(1)));
  left->addIncoming(next, builder_.GetInsertBlock());
  builder_.CreateCondBr(builder_.CreateICmpEQ(next, i64(0)), after, loop);
  builder_.SetInsertPoint(after);
}

Value* Emitter::load_vector(const Address& a, Type type, Value* mask, Value* otherwise) {
  const DType dtype = type.dtype;
  llvm::Type* element = memory_type(dtype);
  llvm::Type* vector = llvm::FixedVectorType::get(element, a.lanes);
  const llvm::Align natural(size_of(dtype)), any_address(1);
  const llvm::Align align = alignment(a);
  const std::optional<int64_t> stride = a.constant_stride();
  const bool dense = stride == 1 || stride == -1;
  if (mask && !(dense && hardware_mask(a)) && !hardware_scatter(a)) {
    llvm::Type* result = type_of(type);
    Value* full = nullptr;
    Value* partial = nullptr;
    llvm::BasicBlock *full_end = nullptr, *partial_end = nullptr;
    when(
        all(mask),
        [&] {
          full = load_vector(a, type, nullptr, nullptr);
          full_end = builder_.GetInsertBlock();
        },
        [&] {
          Value* slot = spill(to_memory(otherwise, dtype));
          masked_lanes(a, mask, [&](Value* lane, Value* pointer) {
            Value* loaded = load_at(a, pointer, element, any_address);
            builder_.CreateAlignedStore(to_memory(loaded, dtype), builder_.CreateGEP(element, slot, lane), natural);
          });
          partial = from_memory(builder_.CreateAlignedLoad(vector, slot, llvm::Align(64)), dtype);
          partial_end = builder_.GetInsertBlock();
        },
        true);
    llvm::PHINode* phi = builder_.CreatePHI(result, 2);
    phi->addIncoming(full, full_end);
    phi->addIncoming(partial, partial_end);
    return phi;
  }
  if (stride == 0) {
    Value* one = load_at(a, a.pointer, element, align);
    return builder_.CreateVectorSplat(a.lanes, one);
  }
  if (dense) {
    const bool reverse = stride == -1;
    Value* first = reverse ? builder_.CreateGEP(element, a.pointer, i64(1 - a.lanes)) : a.pointer;
    const llvm::Align first_align = reverse ? alignment(a, true) : align;
    const auto flip = [&](Value* v) { return reverse ? builder_.CreateShuffleVector(v, reversed(a.lanes)) : v; };
    if (!mask) return flip(load_at(a, first, vector, first_align));
    Value* l =
        scoped(builder_.CreateMaskedLoad(vector, first, first_align, flip(mask), flip(to_memory(otherwise, dtype))),
               *a.buffer);
    return flip(from_memory(l, dtype));
  }
  const bool pieces = stride && std::abs(*stride) <= most_pieces && a.lanes >= 4;
  if (hardware_scatter(a) && (mask || !pieces)) {
    Value* pass = otherwise ? to_memory(otherwise, dtype) : nullptr;
    return from_memory(
        scoped(builder_.CreateMaskedGather(vector, lane_pointers(a), any_address, mask, pass), *a.buffer), dtype);
  }
  if (pieces) {
    // Loads whole vectors, the last one ending exactly at the last lane, and shuffles: nothing outside the lanes' span
    // is read.
    const int64_t step = std::abs(*stride), span = (a.lanes - 1) * step + 1;
    Value* low = *stride > 0 ? a.pointer : builder_.CreateGEP(element, a.pointer, i64(*stride * (a.lanes - 1)));
    Value* result = nullptr;
    std::vector<int> where(a.lanes, -1);
    for (int64_t at = 0; at < span; at += a.lanes) {
      const int64_t begin = std::min<int64_t>(at, span - a.lanes);
      Value* piece = load_at(a, begin == 0 ? low : builder_.CreateGEP(element, low, i64(begin)), vector, any_address);
      std::vector<int> pick(a.lanes, -1);
      for (int i = 0; i < a.lanes; ++i) {
        const int64_t place = (*stride > 0 ? i : a.lanes - 1 - i) * step;
        if (place >= at && place < at + a.lanes)
          pick[i] = static_cast<int>(place - begin) + (result ? a.lanes : 0);
        else if (where[i] >= 0)
          pick[i] = i;
        if (pick[i] >= 0) where[i] = i;
      }
      result = result ? builder_.CreateShuffleVector(result, piece, pick) : builder_.CreateShuffleVector(piece, pick);
    }
    return result;
  }
  Value* result = llvm::PoisonValue::get(type_of(type));
  for (int i = 0; i < a.lanes; ++i)
    result = builder_.CreateInsertElement(result, load_at(a, lane_pointer(a, i), element, any_address), i);
  return result;
}

void Emitter::store_vector(const Address& a, Value* v, Value* mask, bool streaming) {
  const DType dtype = a.buffer->dtype;
  const std::optional<int64_t> stride = a.constant_stride();
  const bool dense = stride == 1 || stride == -1;
  const llvm::Align any_address(1);
  if (mask && !(dense && hardware_mask(a)) && !hardware_scatter(a)) {
    when(
        all(mask), [&] { store_vector(a, v, nullptr, streaming); },
        [&] {
          Value* slot = spill(to_memory(v, dtype));
          masked_lanes(a, mask, [&](Value* lane, Value* pointer) {
            store_at(a, pointer, from_memory(slot_lane(slot, memory_type(dtype), lane), dtype), any_address);
          });
        },
        true);
    return;
  }
  if (stride == 0)
    return store_at(a, a.pointer, builder_.CreateExtractElement(v, static_cast<uint64_t>(a.lanes - 1)),
                    alignment(a));  // the last lane wins
  if (dense) {
    Address at = a;
    if (stride == -1) {
      at.first_multiple = a.last_multiple;
      at.pointer = builder_.CreateGEP(memory_type(dtype), a.pointer, i64(1 - a.lanes));
      v = builder_.CreateShuffleVector(v, reversed(a.lanes));
      if (mask) mask = builder_.CreateShuffleVector(mask, reversed(a.lanes));
    }
    if (mask) {
      scoped(builder_.CreateMaskedStore(to_memory(v, dtype), at.pointer, alignment(at), mask), *a.buffer);
    } else if (!streaming || !stream(at, v)) {
      store_at(at, at.pointer, v, alignment(at));
    }
    return;
  }
  if (hardware_scatter(a)) {  // writes conflicting lanes in lane order
    scoped(builder_.CreateMaskedScatter(to_memory(v, dtype), lane_pointers(a), any_address, mask), *a.buffer);
    return;
  }
  for (int i = 0; i < a.lanes; ++i)
    store_at(a, lane_pointer(a, i), builder_.CreateExtractElement(v, static_cast<uint64_t>(i)), any_address);
}

}  // namespace gradloom::codegen
