// Conversions. f16 and bf16 are represented as their bits in an i16. Where the machine has no exact instruction,
// integer code is emitted: a JIT must not depend on compiler-rt's helpers, and the bf16 instruction flushes denormals.
// Types with more than 24 significant bits convert to f16 and bf16 through an f32 rounded to odd: no double rounding.
#include <llvm/IR/Intrinsics.h>

#include "codegen/llvm/emitter.h"

namespace gradloom::codegen {

using llvm::Value;

Value* Emitter::convert(Value* v, DType from, DType to) {
  if (from == to) return v;
  if (is_storage_float(from)) {
    if (to == DType::boolean)
      return builder_.CreateICmpNE(builder_.CreateAnd(v, splat(v->getType(), 0x7fff)), splat(v->getType(), 0));
    return convert(from == DType::f16 ? f16_to_f32(v) : bf16_to_f32(v), DType::f32, to);
  }
  if (is_storage_float(to)) {
    Value* single = to_f32_odd(v, from);
    return to == DType::f16 ? f32_to_f16(single) : f32_to_bf16(single);
  }
  llvm::Type* type = with_lanes_of(scalar_type(to), v);
  if (to == DType::boolean)
    return is_float(from) ? builder_.CreateFCmpUNE(v, llvm::Constant::getNullValue(v->getType()))
                          : builder_.CreateICmpNE(v, splat(v->getType(), 0));
  if (is_float(from)) {
    if (is_float(to)) return builder_.CreateFPCast(v, type);
    const auto saturating = is_signed_int(to) ? llvm::Intrinsic::fptosi_sat : llvm::Intrinsic::fptoui_sat;
    return builder_.CreateIntrinsic(saturating, {type, v->getType()}, {v});
  }
  if (is_float(to)) return is_signed_int(from) ? builder_.CreateSIToFP(v, type) : builder_.CreateUIToFP(v, type);
  return is_signed_int(from) ? builder_.CreateSExtOrTrunc(v, type) : builder_.CreateZExtOrTrunc(v, type);
}

Value* Emitter::bf16_to_f32(Value* v) {
  Value* wide = builder_.CreateZExt(v, with_lanes_of(builder_.getInt32Ty(), v));
  return builder_.CreateBitCast(builder_.CreateShl(wide, splat(wide->getType(), 16)),
                                with_lanes_of(builder_.getFloatTy(), v));
}

Value* Emitter::f16_to_f32(Value* v) {
  llvm::Type* float_type = with_lanes_of(builder_.getFloatTy(), v);
  if (machine_.f16c)
    return builder_.CreateFPExt(builder_.CreateBitCast(v, with_lanes_of(builder_.getHalfTy(), v)), float_type);
  llvm::Type* type = with_lanes_of(builder_.getInt32Ty(), v);
  Value* wide = builder_.CreateZExt(v, type);
  Value* sign = builder_.CreateShl(builder_.CreateAnd(wide, splat(type, 0x8000)), splat(type, 16));
  Value* magnitude = builder_.CreateShl(builder_.CreateAnd(wide, splat(type, 0x7fff)), splat(type, 13));
  // Scaling by 2^112 rebiases the exponent and normalises f16 denormals, exactly.
  Value* scaled =
      builder_.CreateFMul(builder_.CreateBitCast(magnitude, float_type), llvm::ConstantFP::get(float_type, 0x1p112));
  Value* special = builder_.CreateOr(magnitude, splat(type, 0x7f800000));
  Value* is_special = builder_.CreateICmpUGE(magnitude, splat(type, 0x7c00u << 13));
  Value* bits = builder_.CreateSelect(is_special, special, builder_.CreateBitCast(scaled, type));
  return builder_.CreateBitCast(builder_.CreateOr(bits, sign), float_type);
}

Value* Emitter::f32_to_f16(Value* v) {
  llvm::Type* narrow = with_lanes_of(builder_.getInt16Ty(), v);
  if (machine_.f16c)
    return builder_.CreateBitCast(builder_.CreateFPTrunc(v, with_lanes_of(builder_.getHalfTy(), v)), narrow);
  llvm::Type* type = with_lanes_of(builder_.getInt32Ty(), v);
  Value* bits = builder_.CreateBitCast(v, type);
  Value* sign = builder_.CreateAnd(builder_.CreateLShr(bits, splat(type, 16)), splat(type, 0x8000));
  Value* magnitude = builder_.CreateAnd(bits, splat(type, 0x7fffffff));
  // Normal: the exponent is rebiased; adding half an ulp minus one plus the last kept bit rounds to nearest even, and a
  // carry into the exponent is correct.
  Value* last = builder_.CreateAnd(builder_.CreateLShr(magnitude, splat(type, 13)), splat(type, 1));
  Value* rounded = builder_.CreateAdd(builder_.CreateAdd(magnitude, splat(type, 0xc8000fffu)), last);
  Value* normal = builder_.CreateLShr(rounded, splat(type, 13));
  // Denormal: the ulp of 0.5f is f16's smallest denormal, so the addition rounds.
  Value* shifted =
      builder_.CreateFAdd(builder_.CreateBitCast(magnitude, v->getType()), llvm::ConstantFP::get(v->getType(), 0.5));
  Value* denormal = builder_.CreateSub(builder_.CreateBitCast(shifted, type), splat(type, 0x3f000000));
  Value* result = builder_.CreateSelect(builder_.CreateICmpULT(magnitude, splat(type, 0x38800000)), denormal, normal);
  result =
      builder_.CreateSelect(builder_.CreateICmpUGE(magnitude, splat(type, 0x477ff000)), splat(type, 0x7c00), result);
  result =
      builder_.CreateSelect(builder_.CreateICmpUGT(magnitude, splat(type, 0x7f800000)), splat(type, 0x7e00), result);
  return builder_.CreateTrunc(builder_.CreateOr(result, sign), narrow);
}

Value* Emitter::f32_to_bf16(Value* v) {
  llvm::Type* type = with_lanes_of(builder_.getInt32Ty(), v);
  Value* bits = builder_.CreateBitCast(v, type);
  Value* last = builder_.CreateAnd(builder_.CreateLShr(bits, splat(type, 16)), splat(type, 1));
  Value* rounded =
      builder_.CreateLShr(builder_.CreateAdd(builder_.CreateAdd(bits, splat(type, 0x7fff)), last), splat(type, 16));
  Value* quiet = builder_.CreateOr(builder_.CreateLShr(bits, splat(type, 16)), splat(type, 0x40));
  Value* is_nan = builder_.CreateFCmpUNO(v, v);
  return builder_.CreateTrunc(builder_.CreateSelect(is_nan, quiet, rounded), with_lanes_of(builder_.getInt16Ty(), v));
}

// An f32 that rounds to the same f16 or bf16 as `v` does: exact for narrow types, else rounded to odd.
Value* Emitter::to_f32_odd(Value* v, DType from) {
  if (from == DType::boolean || (is_int(from) && size_of(from) <= 2) || from == DType::f32)
    return convert(v, from, DType::f32);
  Value* wide = is_int(from) && size_of(from) == 8 ? to_f64_odd(v, is_signed_int(from)) : convert(v, from, DType::f64);
  llvm::Type* type = with_lanes_of(builder_.getInt32Ty(), v);
  Value* nearest = builder_.CreateFPTrunc(wide, with_lanes_of(builder_.getFloatTy(), v));
  Value* back = builder_.CreateFPExt(nearest, wide->getType());
  Value* bits = builder_.CreateBitCast(nearest, type);
  Value* too_far = builder_.CreateFCmpOGT(builder_.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, back),
                                          builder_.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, wide));
  Value* truncated = builder_.CreateAdd(bits, builder_.CreateSExt(too_far, type));
  Value* odd = builder_.CreateOr(truncated, splat(type, 1));
  Value* exact = builder_.CreateFCmpUEQ(back, wide);  // or NaN
  return builder_.CreateBitCast(builder_.CreateSelect(exact, bits, odd), nearest->getType());
}

// A 64-bit integer of more than 53 bits is reduced by its low 11, which are ORed into the last kept bit as a sticky
// bit; the result converts exactly.
Value* Emitter::to_f64_odd(Value* v, bool is_signed) {
  llvm::Type* type = v->getType();
  Value* low = builder_.CreateAnd(v, splat(type, 0x7ff));
  Value* sticky = builder_.CreateSelect(builder_.CreateICmpNE(low, splat(type, 0)), splat(type, 0x800), splat(type, 0));
  Value* reduced = builder_.CreateOr(builder_.CreateAnd(v, splat(type, ~uint64_t{0x7ff})), sticky);
  constexpr uint64_t limit = uint64_t{1} << 53;
  Value* fits = is_signed ? builder_.CreateICmpULT(builder_.CreateAdd(v, splat(type, limit)), splat(type, 2 * limit))
                          : builder_.CreateICmpULT(v, splat(type, limit));
  Value* exact = builder_.CreateSelect(fits, v, reduced);
  llvm::Type* double_type = with_lanes_of(builder_.getDoubleTy(), v);
  return is_signed ? builder_.CreateSIToFP(exact, double_type) : builder_.CreateUIToFP(exact, double_type);
}

}  // namespace gradloom::codegen
