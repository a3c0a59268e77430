#pragma once
// Where a statement accesses a buffer.
#include <vector>

#include "gradloom/stmt.h"

namespace gradloom::ir {

struct BufferAccess {
  Stmt stmt;
  std::vector<Expr> index;
  bool writes = false;
};
// Every load, store, accumulate and reduction of the buffer in this statement and below.
std::vector<BufferAccess> accesses(const Stmt& s, const Buffer& buffer);
// Whether an index inside these loops visits every element of the window exactly once: each dim is traversed by its own
// loop, and all other loops run at least once.
bool covers_region(const std::vector<const For*>& loops, const std::vector<Expr>& index, const std::vector<Expr>& begin,
                   const std::vector<Expr>& extent);
// Whether a statement writes a buffer that this expression loads.
bool may_clobber(const Stmt& s, const Expr& e);

}  // namespace gradloom::ir
