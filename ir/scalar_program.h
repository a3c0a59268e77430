#pragma once
// A scalar expression without nodes: what is evaluated outside kernels, by a launcher (bounds, conditions, sizes of
// scratch) and by the checks of a call (dims, strides, declared ranges). A postfix program on a stack of values, each
// its dtype's bits (scalar_math.h): plain data that can be kept on disk. It means what the expression means in every
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
    cast,    // what: the DType that it gives
    size     // of two i64, a product of sizes: nothing where one is not positive, INT64_MAX where it does not fit
  } op = constant;
  int64_t value = 0;
  DType dtype = DType::i64;  // of the operands
  uint8_t what = 0;
  static constexpr Op last = size;  // what a file may hold goes up to it
  bool operator==(const ScalarCode&) const = default;
};
using ScalarProgram = std::vector<ScalarCode>;

// Whether a program can hold it: no vector, no memory, no intrinsic.
bool is_scalar_arithmetic(const Expr& e);

// Appends to a program what leaves the expression's value on the stack. Throws Error(unsupported) for what is no scalar
// arithmetic.
using SlotOf = std::function<int64_t(const Var&)>;
void append(ScalarProgram& program, const Expr& e, const SlotOf& slot_of);
ScalarProgram scalar_program(const Expr& e, const SlotOf& slot_of);

// Whether running it finds its operands on the stack and leaves one value, knows each operator and dtype, and reads
// slots below `slots` only.
bool is_well_formed(const ScalarProgram& program, int64_t slots);

// Of i64 arithmetic whose result does not fit: as in a kernel, or, for what counts elements of a caller's buffers,
// none.
enum class Overflow : uint8_t { wraps, has_no_value };

// The value's bits; nullopt: it has none, as a divisor is 0 or a shift count not within the width, or by `overflow`.
// What a select does not choose has no say.
std::optional<uint64_t> evaluate(const ScalarProgram& program, std::span<const int64_t> slots,
                                 Overflow overflow = Overflow::wraps);

}  // namespace gradloom::ir
