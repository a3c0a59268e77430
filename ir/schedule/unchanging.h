#pragma once
// Internal to schedules: whether a statement is proved to change nothing.
#include <string>

#include "gradloom/stmt.h"

namespace gradloom::ir {

// Why the body, without the loop `skipped` (0: none), may change memory that it does not allocate itself; empty where
// it is proved to store only what is there already.
std::string why_it_changes(const Stmt& body, int64_t skipped);

}  // namespace gradloom::ir
