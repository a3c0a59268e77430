#pragma once
// One row a binary operator, in the order of BinaryOp: how it is named, and how it is written between its operands.
#include <array>

#include "gradloom/expr.h"

namespace gradloom::ir {

// How tightly an operator binds. Comparisons do not chain.
namespace precedence {
enum : int { lowest, bit_or, bit_xor, bit_and, comparison, shift, sum, product, prefix };
}

struct BinaryInfo {
  BinaryOp op;
  const char* name;
  const char* symbol = nullptr;  // none: it is written as a function of its name
  int precedence = precedence::prefix;
};

inline constexpr std::array<BinaryInfo, 19> binary_infos{{
    {BinaryOp::add, "add", "+", precedence::sum},
    {BinaryOp::sub, "sub", "-", precedence::sum},
    {BinaryOp::mul, "mul", "*", precedence::product},
    {BinaryOp::div, "div", "/", precedence::product},
    {BinaryOp::floor_div, "floor_div"},
    {BinaryOp::floor_mod, "floor_mod"},
    {BinaryOp::min, "min"},
    {BinaryOp::max, "max"},
    {BinaryOp::bit_and, "and", "&", precedence::bit_and},
    {BinaryOp::bit_or, "or", "|", precedence::bit_or},
    {BinaryOp::bit_xor, "xor", "^", precedence::bit_xor},
    {BinaryOp::shl, "shl", "<<", precedence::shift},
    {BinaryOp::shr, "shr", ">>", precedence::shift},
    {BinaryOp::eq, "eq", "==", precedence::comparison},
    {BinaryOp::ne, "ne", "!=", precedence::comparison},
    {BinaryOp::lt, "lt", "<", precedence::comparison},
    {BinaryOp::le, "le", "<=", precedence::comparison},
    {BinaryOp::gt, "gt", ">", precedence::comparison},
    {BinaryOp::ge, "ge", ">=", precedence::comparison},
}};
constexpr const BinaryInfo& info_of(BinaryOp op) { return binary_infos[static_cast<size_t>(op)]; }
static_assert([] {
  for (size_t i = 0; i < binary_infos.size(); ++i)
    if (binary_infos[i].op != static_cast<BinaryOp>(i)) return false;
  return info_of(BinaryOp::ge).op == BinaryOp::ge;  // the last
}());

}  // namespace gradloom::ir
