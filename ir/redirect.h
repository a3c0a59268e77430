#pragma once
// Accesses to a buffer that become accesses to another one.
#include <functional>
#include <unordered_map>
#include <vector>

#include "gradloom/stmt.h"

namespace gradloom::ir {

struct Redirection {
  Buffer to;
  std::function<std::vector<Expr>(std::vector<Expr> index)> index;  // a place -> the place in `to`; absent: the same
  // Whether prefetches follow and stores stream as before. Not where `to` is a near copy, filled from the buffer and
  // written back: what is fetched ahead is then read from the buffer, and what is stored is read again soon.
  bool hints = true;
  bool atomic = true;  // whether what is atomic stays so; not where one iteration alone sees `to`
};
using Redirections = std::unordered_map<int64_t, Redirection>;  // by the id of the buffer that is accessed

// Loads, stores, accumulates and prefetches of these buffers go to others, and keep their guards, what they are
// otherwise, and whether they are atomic. An alloc of such a buffer goes: it is for the caller to allocate the other
// one; but where that is the same buffer, by id, it stays and declares it.
Stmt redirect(const Stmt& s, const Redirections& buffers);
Stmt redirect(const Stmt& s, const Buffer& from, Redirection to);

// The same buffer, by id, in another space.
Buffer in_space(const Buffer& b, Space space);
// Forgets declared bounds of values that mention other variables than these: a declaration may use what is bound around
// it alone.
void drop_open_facts(BufferNode& node, const std::vector<Var>& vars);
// The same buffer, by id, so declared; itself where nothing is forgotten.
Buffer with_closed_facts(const Buffer& b, const std::vector<Var>& vars);

}  // namespace gradloom::ir
