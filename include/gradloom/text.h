#pragma once
// The text form (`.loop`): print and parse round-trip exactly (same structure, same names, same constants' bits).
#include <string>
#include <string_view>

#include "gradloom/stmt.h"

#pragma GCC visibility push(default)
namespace gradloom::ir {

std::string print(const Kernel& kernel);
std::string print(const Stmt& stmt);
std::string print(const Expr& expr);

// Throws Error(invalid_argument) with "line:column: what was expected". Nesting deeper than 200 levels is refused.
Kernel parse(std::string_view text);

}  // namespace gradloom::ir

#pragma GCC visibility pop
