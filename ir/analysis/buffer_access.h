#pragma once
// Where a statement touches a buffer.
#include <vector>

#include "gradloom/stmt.h"

namespace gradloom::ir {

struct BufferAccess {
  Stmt stmt;
  std::vector<Expr> index;
  bool writes = false;
};
// Every load, store and accumulate of the buffer in this statement and below.
std::vector<BufferAccess> accesses(const Stmt& s, const Buffer& buffer);
// Whether an index inside of these loops takes every place of the window once: each dim walked by a loop of its own,
// all others running at least once.
bool covers_region(const std::vector<const For*>& loops, const std::vector<Expr>& index, const std::vector<Expr>& begin,
                   const std::vector<Expr>& extent);
// Whether a statement writes a buffer that this expression loads.
bool may_clobber(const Stmt& s, const Expr& e);

}  // namespace gradloom::ir
