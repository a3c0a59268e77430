#pragma once
// Semantics of every operator on one lane's bits, shared by the interpreter, constant folding and every backend. A
// value of a dtype is its bit pattern zero-extended to 64 bits; a boolean is 0 or 1.
#include <cstdint>

#include "gradloom/dtype.h"

namespace gradloom::ir {

enum class UnaryOp : uint8_t;
enum class BinaryOp : uint8_t;

uint64_t bits_from_int(DType dtype, int64_t value);    // wrapped to an integer dtype; to a float dtype: rounded once
int64_t int_from_bits(DType dtype, uint64_t bits);     // integer dtypes and bool: the value (u64 keeps its bits)
uint64_t bits_from_double(DType dtype, double value);  // as Cast from f64
double double_from_bits(DType dtype, uint64_t bits);   // any dtype to double (i64 and u64 may round)

uint64_t eval_unary(UnaryOp op, DType dtype, uint64_t a);
uint64_t eval_binary(BinaryOp op, DType dtype, uint64_t a,
                     uint64_t b);                       // dtype of the operands; divisor and shift preconditions hold
bool is_defined(BinaryOp op, DType dtype, uint64_t b);  // whether those preconditions hold of the right operand
uint64_t eval_fma(DType dtype, uint64_t a, uint64_t b, uint64_t c);
uint64_t eval_cast(DType from, DType to, uint64_t bits);

}  // namespace gradloom::ir
