#pragma once
// The text form (`.loop`): print and parse round-trip exactly (same structure, same names, same constants' bits).
#include <string>
#include <string_view>
#include <vector>

#include "gradloom/stmt.h"

#pragma GCC visibility push(default)
namespace gradloom::ir {

std::string print(const Kernel& kernel);
std::string print(const Stmt& stmt);
std::string print(const Expr& expr);

// Throws Error(invalid_argument) with "line:column: what was expected". Nesting deeper than 200 levels is refused.
Kernel parse(std::string_view text);

// A value for each element of a buffer that a nest reads or allocates.
struct ElementValue {
  Buffer buffer = {};
  std::vector<Var> index = {};
  Expr value = {};  // of the buffer's dtype: of the index, and of what is in scope where the buffer is allocated
};

// "e[j] = y[i, j]": names for the index, and what is in scope where e is allocated. 0 may stand for the index of a
// single element. Throws as parse does.
ElementValue parse_element_value(const Kernel& kernel, std::string_view text);

}  // namespace gradloom::ir

#pragma GCC visibility pop
