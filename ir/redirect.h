#pragma once
// Redirects accesses from one buffer to another.
#include <functional>
#include <unordered_map>
#include <vector>

#include "gradloom/stmt.h"

namespace gradloom::ir {

struct Redirection {
  Buffer to;
  std::function<std::vector<Expr>(std::vector<Expr> index)> index;  // index -> index in `to`; absent: identity
  // Whether prefetches are redirected and stores keep streaming. False where `to` is a staged copy, filled from the
  // buffer and written back: the prefetched data is then read from the buffer, and stored data is read again soon.
  bool hints = true;
  bool atomic = true;  // whether atomic accesses stay atomic; false where `to` is private to one iteration
};
using Redirections = std::unordered_map<int64_t, Redirection>;  // by the id of the buffer that is accessed

// Redirects loads, stores, accumulates and prefetches of these buffers to others; guards, other attributes and
// atomicity are preserved. An alloc of such a buffer is removed, and the caller allocates the other one; if that is the
// same buffer, by id, the alloc stays and declares it.
Stmt redirect(const Stmt& s, const Redirections& buffers);
Stmt redirect(const Stmt& s, const Buffer& from, Redirection to);

// The same buffer, by id, in another space.
Buffer in_space(const Buffer& b, Space space);
// Drops declared value bounds that mention other variables than these: a declaration may use only what is bound around
// it.
void drop_open_facts(BufferNode& node, const std::vector<Var>& vars);
// The same buffer, by id, with the new declaration; unchanged where nothing is dropped.
Buffer with_closed_facts(const Buffer& b, const std::vector<Var>& vars);

}  // namespace gradloom::ir
