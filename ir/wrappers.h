#pragma once
// Statements that stand around one other: a let, an alloc, a check, a condition without an else,
// a loop.
#include <functional>
#include <vector>

#include "gradloom/stmt.h"

namespace gradloom::ir {

bool is_wrapper(const Stmt& s);
// The statement in it.
Stmt body_of(const Stmt& wrapper);
// The same around another one.
Stmt with_body(const Stmt& wrapper, const Stmt& body);
Stmt wrapped(const std::vector<Stmt>& wrappers, Stmt body);  // outermost first
// The wrapper's own expressions, those of what is in it left out; of an alloc, its declaration's.
std::vector<Expr> own_exprs(const Stmt& wrapper);
bool any_of_own(const Stmt& wrapper, const std::function<bool(const Expr&)>& predicate);

}  // namespace gradloom::ir
