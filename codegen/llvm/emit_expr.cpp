// Expressions as LLVM instructions, with the semantics of gradloom/expr.h.
#include <llvm/IR/Intrinsics.h>
#include <llvm/IR/IntrinsicsX86.h>
#include <llvm/IR/PatternMatch.h>

#include "codegen/llvm/emitter.h"

namespace gradloom::codegen {

using llvm::Value;

llvm::Type* Emitter::scalar_type(DType t) {
  switch (t) {
    case DType::boolean:
      return builder_.getInt1Ty();
    case DType::f32:
      return builder_.getFloatTy();
    case DType::f64:
      return builder_.getDoubleTy();
    default:
      return builder_.getIntNTy(size_of(t) * 8);  // f16 and bf16 as their bits
  }
}

llvm::Type* Emitter::memory_type(DType t) { return t == DType::boolean ? builder_.getInt8Ty() : scalar_type(t); }

llvm::Type* Emitter::type_of(Type t) {
  llvm::Type* element = scalar_type(t.dtype);
  return t.lanes == 1 ? element : llvm::FixedVectorType::get(element, t.lanes);
}

llvm::Type* Emitter::with_lanes_of(llvm::Type* element, Value* like) {
  const auto* vector = llvm::dyn_cast<llvm::FixedVectorType>(like->getType());
  return vector ? llvm::FixedVectorType::get(element, vector->getNumElements()) : element;
}

Value* Emitter::splat(llvm::Type* type, uint64_t bits) {
  return llvm::ConstantInt::get(type, llvm::APInt(type->getScalarSizeInBits(), bits, false, true));
}

llvm::ConstantInt* Emitter::i64(int64_t v) { return builder_.getInt64(static_cast<uint64_t>(v)); }

Value* Emitter::add(Value* a, Value* b) {
  if (!a) return b;
  if (!b) return a;
  return builder_.CreateAdd(a, b);
}

Value* Emitter::scale(Value* a, Value* factor) {
  if (!a) return nullptr;
  const auto* constant = llvm::dyn_cast<llvm::ConstantInt>(factor);
  Value* known = constant ? stepped(a, constant->getSExtValue()) : nullptr;
  return known ? known : builder_.CreateMul(a, factor);
}

Value* Emitter::value(const ir::Expr& e) {
  if (const auto found = memo_.find(e.get()); found != memo_.end()) return found->second;
  Value* v = std::visit([&](const auto& n) { return emit(n, e.type()); }, e.node().value);
  memo_[e.get()] = v;
  return v;
}

Value* Emitter::emit(const ir::Const& n, Type type) {
  llvm::Type* t = scalar_type(type.dtype);
  if (t->isFloatingPointTy())
    return llvm::ConstantFP::get(
        t, llvm::APFloat(t->getFltSemantics(), llvm::APInt(t->getScalarSizeInBits(), n.bits, false, true)));
  return splat(t, n.bits);
}

Value* Emitter::emit(const ir::Var& n, Type) {
  const auto found = frame_->vars.find(n.id);
  if (found == frame_->vars.end())
    throw Error(ErrorCode::internal, "emit: variable " + n.name + " is used outside its scope");
  return found->second.value;
}

Value* Emitter::emit(const ir::Unary& n, Type type) {
  Value* a = value(n.a);
  const bool floating = is_float(type.dtype);
  switch (n.op) {
    case ir::UnaryOp::neg:
      return floating ? builder_.CreateFNeg(a) : builder_.CreateNeg(a);
    case ir::UnaryOp::bit_not:
      return builder_.CreateNot(a);
    case ir::UnaryOp::abs:
      if (floating) return builder_.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, a);
      return is_signed_int(type.dtype) ? builder_.CreateBinaryIntrinsic(llvm::Intrinsic::abs, a, builder_.getFalse())
                                       : a;
    case ir::UnaryOp::sqrt:
      return builder_.CreateUnaryIntrinsic(llvm::Intrinsic::sqrt, a);
    case ir::UnaryOp::floor:
      return builder_.CreateUnaryIntrinsic(llvm::Intrinsic::floor, a);
    case ir::UnaryOp::ceil:
      return builder_.CreateUnaryIntrinsic(llvm::Intrinsic::ceil, a);
    case ir::UnaryOp::trunc:
      return builder_.CreateUnaryIntrinsic(llvm::Intrinsic::trunc, a);
  }
  throw Error(ErrorCode::internal, "emit: an unknown unary operator");
}

// A mask of consecutive indices against a limit, `ramp(i, 1, n) < broadcast(limit, n)`: the difference limit - i is a
// scalar, compared with 32-bit lane numbers. 64-bit lanes would fill four registers where the masked vector fills one.
// Null where the difference may wrap.
Value* Emitter::lane_mask(const ir::Binary& n) {
  const auto* ramp = n.a.as<ir::Ramp>();
  const auto* limit = n.b.as<ir::Broadcast>();
  if (!ramp || !limit || n.a.dtype() != DType::i64 || ir::as_int(ramp->stride) != 1) return nullptr;
  if (!ir::is_order(n.op)) return nullptr;
  constexpr int64_t far = int64_t{1} << 61;
  for (const ir::Expr& side : {ramp->base, limit->value}) {
    const ir::Range range = ranges_.of(side);
    if (!range.min || !range.max || *range.min < -far || *range.max > far) return nullptr;
  }
  const int lanes = ramp->lanes;
  Value* difference = builder_.CreateSub(value(limit->value), value(ramp->base));
  difference = builder_.CreateBinaryIntrinsic(llvm::Intrinsic::smax, difference, i64(-1));
  difference = builder_.CreateBinaryIntrinsic(llvm::Intrinsic::smin, difference, i64(lanes));
  std::vector<llvm::Constant*> numbers;
  for (int i = 0; i < lanes; ++i) numbers.push_back(builder_.getInt32(i));
  return binary(n.op, DType::i32, llvm::ConstantVector::get(numbers),
                builder_.CreateVectorSplat(lanes, builder_.CreateTrunc(difference, builder_.getInt32Ty())));
}

Value* Emitter::emit(const ir::Binary& n, Type) {
  if (Value* mask = lane_mask(n)) return mask;
  Value* a = value(n.a);
  return binary(n.op, n.a.dtype(), a, value(n.b));
}

Value* Emitter::binary(ir::BinaryOp op, DType dtype, Value* a, Value* b) {
  const bool floating = is_float(dtype), is_signed = is_signed_int(dtype);
  using llvm::CmpInst;
  const auto compare = [&](CmpInst::Predicate on_float, CmpInst::Predicate on_signed, CmpInst::Predicate on_unsigned) {
    return floating ? builder_.CreateFCmp(on_float, a, b)
                    : builder_.CreateICmp(is_signed ? on_signed : on_unsigned, a, b);
  };
  const auto pick = [&](llvm::Intrinsic::ID on_float, llvm::Intrinsic::ID on_signed, llvm::Intrinsic::ID on_unsigned) {
    return builder_.CreateBinaryIntrinsic(floating ? on_float : is_signed ? on_signed : on_unsigned, a, b);
  };
  switch (op) {
    case ir::BinaryOp::add:
      return floating ? builder_.CreateFAdd(a, b) : builder_.CreateAdd(a, b);
    case ir::BinaryOp::sub:
      return floating ? builder_.CreateFSub(a, b) : builder_.CreateSub(a, b);
    case ir::BinaryOp::mul:
      return floating ? builder_.CreateFMul(a, b) : builder_.CreateMul(a, b);
    case ir::BinaryOp::div:
      return builder_.CreateFDiv(a, b);
    case ir::BinaryOp::floor_div:
      return floor_division(false, dtype, a, b);
    case ir::BinaryOp::floor_mod:
      return floor_division(true, dtype, a, b);
    case ir::BinaryOp::min:
      return pick(llvm::Intrinsic::minimum, llvm::Intrinsic::smin, llvm::Intrinsic::umin);
    case ir::BinaryOp::max:
      return pick(llvm::Intrinsic::maximum, llvm::Intrinsic::smax, llvm::Intrinsic::umax);
    case ir::BinaryOp::bit_and:
      return builder_.CreateAnd(a, b);
    case ir::BinaryOp::bit_or:
      return builder_.CreateOr(a, b);
    case ir::BinaryOp::bit_xor:
      return builder_.CreateXor(a, b);
    case ir::BinaryOp::shl:
      return builder_.CreateShl(a, b);
    case ir::BinaryOp::shr:
      return is_signed ? builder_.CreateAShr(a, b) : builder_.CreateLShr(a, b);
    case ir::BinaryOp::eq:
      return compare(CmpInst::FCMP_OEQ, CmpInst::ICMP_EQ, CmpInst::ICMP_EQ);
    case ir::BinaryOp::ne:
      return compare(CmpInst::FCMP_UNE, CmpInst::ICMP_NE, CmpInst::ICMP_NE);
    case ir::BinaryOp::lt:
      return compare(CmpInst::FCMP_OLT, CmpInst::ICMP_SLT, CmpInst::ICMP_ULT);
    case ir::BinaryOp::le:
      return compare(CmpInst::FCMP_OLE, CmpInst::ICMP_SLE, CmpInst::ICMP_ULE);
    case ir::BinaryOp::gt:
      return compare(CmpInst::FCMP_OGT, CmpInst::ICMP_SGT, CmpInst::ICMP_UGT);
    case ir::BinaryOp::ge:
      return compare(CmpInst::FCMP_OGE, CmpInst::ICMP_SGE, CmpInst::ICMP_UGE);
  }
  throw Error(ErrorCode::internal, "emit: an unknown binary operator");
}

// Floor division. The machine's division traps on INT_MIN / -1, which wraps here: a divisor of -1 is special-cased.
Value* Emitter::floor_division(bool modulo, DType dtype, Value* a, Value* b) {
  if (!is_signed_int(dtype)) return modulo ? builder_.CreateURem(a, b) : builder_.CreateUDiv(a, b);
  llvm::Type* type = a->getType();
  Value* zero = splat(type, 0);
  const llvm::APInt* c = nullptr;
  if (llvm::PatternMatch::match(b, llvm::PatternMatch::m_APInt(c))) {
    if (c->isPowerOf2() && !c->isNegative())
      return modulo ? builder_.CreateAnd(a, splat(type, c->getZExtValue() - 1))
                    : builder_.CreateAShr(a, splat(type, c->logBase2()));
    if (c->isAllOnes()) return modulo ? zero : builder_.CreateNeg(a);
    Value* quotient = builder_.CreateSDiv(a, b);
    Value* rest = builder_.CreateSub(a, builder_.CreateMul(quotient, b));
    Value* adjust = c->isNegative() ? builder_.CreateICmpSGT(rest, zero) : builder_.CreateICmpSLT(rest, zero);
    return modulo ? builder_.CreateAdd(rest, builder_.CreateSelect(adjust, b, zero))
                  : builder_.CreateAdd(quotient, builder_.CreateSExt(adjust, type));
  }
  Value* minus_one = builder_.CreateICmpEQ(b, llvm::Constant::getAllOnesValue(type));
  Value* safe = builder_.CreateSelect(minus_one, splat(type, 1), b);
  Value* quotient = builder_.CreateSelect(minus_one, builder_.CreateNeg(a), builder_.CreateSDiv(a, safe));
  Value* rest = builder_.CreateSub(a, builder_.CreateMul(quotient, b));
  Value* signs_differ = builder_.CreateICmpSLT(builder_.CreateXor(rest, b), zero);
  Value* adjust = builder_.CreateAnd(builder_.CreateICmpNE(rest, zero), signs_differ);
  return modulo ? builder_.CreateAdd(rest, builder_.CreateSelect(adjust, b, zero))
                : builder_.CreateAdd(quotient, builder_.CreateSExt(adjust, type));
}

Value* Emitter::fused(Value* a, Value* b, Value* c) {
  return builder_.CreateIntrinsic(llvm::Intrinsic::fma, {a->getType()}, {a, b, c});
}

Value* Emitter::emit(const ir::Fma& n, Type) {
  Value* a = value(n.a);
  Value* b = value(n.b);
  return fused(a, b, value(n.c));
}

Value* Emitter::emit(const ir::Select& n, Type) {
  Value* condition = value(n.condition);
  Value* a = value(n.a);
  return builder_.CreateSelect(condition, a, value(n.b));
}

Value* Emitter::emit(const ir::Cast& n, Type type) { return convert(value(n.value), n.value.dtype(), type.dtype); }

Value* Emitter::emit(const ir::Bitcast& n, Type type) { return builder_.CreateBitCast(value(n.value), type_of(type)); }

Value* Emitter::emit(const ir::Ramp& n, Type type) {
  Value* base = builder_.CreateVectorSplat(n.lanes, value(n.base));
  Value* stride = builder_.CreateVectorSplat(n.lanes, value(n.stride));
  llvm::Type* element = scalar_type(type.dtype);
  std::vector<llvm::Constant*> steps;
  for (int i = 0; i < n.lanes; ++i)
    steps.push_back(llvm::ConstantInt::get(element, llvm::APInt(element->getScalarSizeInBits(), i, false, true)));
  return builder_.CreateAdd(base, builder_.CreateMul(llvm::ConstantVector::get(steps), stride));
}

Value* Emitter::emit(const ir::Broadcast& n, Type) { return builder_.CreateVectorSplat(n.lanes, value(n.value)); }

Value* Emitter::emit(const ir::Shuffle& n, Type) {
  Value* a = value(n.a);
  Value* b = n.b ? value(n.b) : nullptr;
  if (n.a.lanes() == 1) {  // a vector of scalars
    if (n.lanes.size() == 1) return n.lanes[0] == 0 ? a : b;
    Value* v = llvm::PoisonValue::get(llvm::FixedVectorType::get(a->getType(), n.lanes.size()));
    for (size_t i = 0; i < n.lanes.size(); ++i) v = builder_.CreateInsertElement(v, n.lanes[i] == 0 ? a : b, i);
    return v;
  }
  if (n.lanes.size() == 1) {
    const bool second = n.lanes[0] >= n.a.lanes();
    return builder_.CreateExtractElement(second ? b : a,
                                         static_cast<uint64_t>(n.lanes[0] - (second ? n.a.lanes() : 0)));
  }
  return builder_.CreateShuffleVector(a, b ? b : llvm::PoisonValue::get(a->getType()), n.lanes);
}

Value* Emitter::all(Value* condition) {
  return condition->getType()->isVectorTy() ? builder_.CreateAndReduce(condition) : condition;
}
Value* Emitter::any(Value* condition) {
  return condition->getType()->isVectorTy() ? builder_.CreateOrReduce(condition) : condition;
}

Value* Emitter::emit(const ir::Intrinsic& n, Type) {
  switch (n.op) {
    case ir::IntrinsicOp::all:
      return all(value(n.args[0]));
    case ir::IntrinsicOp::any:
      return any(value(n.args[0]));
    case ir::IntrinsicOp::prefetch: {
      const Address a = address(n.buffer, n.args, 1);
      // A prefetch into L1 keeps the line in all levels (locality 3), one into L3 in the last only (locality 1).
      builder_.CreateIntrinsic(llvm::Intrinsic::prefetch, {a.pointer->getType()},
                               {a.pointer, builder_.getInt32(0), builder_.getInt32(4 - n.level), builder_.getInt32(1)});
      return builder_.getFalse();
    }
  }
  throw Error(ErrorCode::internal, "emit: an unknown intrinsic");
}

Value* Emitter::emit(const ir::Math& n, Type) {
  throw Error(ErrorCode::internal, std::string("emit: ") + to_string(n.op) + " is not expanded");
}

}  // namespace gradloom::codegen
