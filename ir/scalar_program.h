#pragma once
// Compiled scalar expressions, for evaluation outside kernels: by a launcher (bounds, conditions, sizes of scratch) and
// by the checks of a call (dims, strides, declared ranges). A postfix program on a stack of values, each represented by
// its dtype's bits (scalar_math.h): plain data that can be stored on disk. Its semantics are the expression's in every
// executor.
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "gradloom/expr.h"

namespace gradloom::ir {

struct ScalarCode {
  enum Op : uint8_t {
    constant,  // value: the bits
    slot,      // value: its number; of the slot's 64 bits those of `dtype`
    unary,     // what: a UnaryOp
    binary,    // what: a BinaryOp
    fma,
    select,  // of a condition and two values
    cast,    // what: the result DType
    size     // of two i64, a product of sizes: 0 where one is not positive, INT64_MAX on overflow
  } op = constant;
  int64_t value = 0;
  DType dtype = DType::i64;  // of the operands
  uint8_t what = 0;
  static constexpr Op last = size;  // the last one allowed in a file
  bool operator==(const ScalarCode&) const = default;
};
using ScalarProgram = std::vector<ScalarCode>;

// Whether a program can represent it: no vector, no memory, no intrinsic.
bool is_scalar_arithmetic(const Expr& e);

// Appends code to a program that leaves the expression's value on the stack. Throws Error(unsupported) for anything but
// scalar arithmetic.
using SlotOf = std::function<int64_t(const Var&)>;
void append(ScalarProgram& program, const Expr& e, const SlotOf& slot_of);
ScalarProgram scalar_program(const Expr& e, const SlotOf& slot_of);

// Validation: whether the program finds its operands on the stack and leaves one value, uses known operators and
// dtypes, and reads slots below `slots` only.
bool is_well_formed(const ScalarProgram& program, int64_t slots);

// i64 arithmetic whose result overflows: wraps, as in a kernel, or, for element counts of a caller's buffers, has no
// value.
enum class Overflow : uint8_t { wraps, has_no_value };

// The value's bits; nullopt: no value, for a divisor of 0 or a shift count out of range, or by `overflow`. The side
// that a select does not choose does not matter.
std::optional<uint64_t> evaluate(const ScalarProgram& program, std::span<const int64_t> slots,
                                 Overflow overflow = Overflow::wraps);

}  // namespace gradloom::ir
