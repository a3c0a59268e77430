#pragma once
// Traversal and rewriting of the tree. A Rewriter rebuilds a node from its rewritten children and returns the same node
// when none changed; a pass overrides what it changes. Everything is exhaustive over the node variants: a new node kind
// is a compile error here.
#include <functional>
#include <unordered_map>

#include "gradloom/stmt.h"

namespace gradloom::ir {

class Rewriter {
 public:
  virtual ~Rewriter() = default;
  Expr operator()(const Expr& e);  // an absent expression stays absent
  Stmt operator()(const Stmt& s);
  Kernel operator()(const Kernel& kernel);  // rewrites the body only

 protected:
  // The overloads get the node with its handle; the default rewrites the children.
  virtual Expr rewrite(const Const&, const Expr& self) { return self; }
  virtual Expr rewrite(const Var&, const Expr& self) { return self; }
  virtual Expr rewrite(const Load& n, const Expr& self);
  virtual Expr rewrite(const Unary& n, const Expr& self);
  virtual Expr rewrite(const Binary& n, const Expr& self);
  virtual Expr rewrite(const Fma& n, const Expr& self);
  virtual Expr rewrite(const Select& n, const Expr& self);
  virtual Expr rewrite(const Cast& n, const Expr& self);
  virtual Expr rewrite(const Bitcast& n, const Expr& self);
  virtual Expr rewrite(const Ramp& n, const Expr& self);
  virtual Expr rewrite(const Broadcast& n, const Expr& self);
  virtual Expr rewrite(const Shuffle& n, const Expr& self);
  virtual Expr rewrite(const Intrinsic& n, const Expr& self);
  virtual Expr rewrite(const Math& n, const Expr& self);
  virtual Stmt rewrite(const For& n, const Stmt& self);
  virtual Stmt rewrite(const Block& n, const Stmt& self);
  virtual Stmt rewrite(const Let& n, const Stmt& self);
  virtual Stmt rewrite(const Store& n, const Stmt& self);
  virtual Stmt rewrite(const Accumulate& n, const Stmt& self);
  virtual Stmt rewrite(const Reduce& n, const Stmt& self);
  virtual Stmt rewrite(const If& n, const Stmt& self);
  virtual Stmt rewrite(const Alloc& n, const Stmt& self);
  virtual Stmt rewrite(const Check& n, const Stmt& self);
  virtual Stmt rewrite(const Evaluate& n, const Stmt& self);
  virtual Stmt rewrite(const Barrier&, const Stmt& self) { return self; }
  // Every buffer mentioned by a rewritten node passes through here, so that a pass can replace buffers.
  virtual Buffer buffer(const Buffer& b) { return b; }

  std::vector<Expr> list(const std::vector<Expr>& exprs, bool& changed);
  BufferNode declaration(const Buffer& b, bool& changed);  // its dims, strides and facts rewritten
};

// Calls `expr` on every expression and `stmt` on every statement below (and including) the root, parents first.
void walk(const Stmt& root, const std::function<void(const Stmt&)>& stmt,
          const std::function<void(const Expr&)>& expr = {});
void walk(const Expr& root, const std::function<void(const Expr&)>& expr);

// Whether the predicate holds for an expression, or a statement, below (or including) the root; visits parents first
// and stops at the first match. False for an absent root.
bool any_of(const Expr& root, const std::function<bool(const Expr&)>& predicate);
bool any_of(const Stmt& root, const std::function<bool(const Expr&)>& predicate);
bool any_of(const Stmt& root, const std::function<bool(const Stmt&)>& predicate);

using Substitution = std::unordered_map<int64_t, Expr>;  // variable id -> value
Expr substitute(const Expr& e, const Substitution& values);
Stmt substitute(const Stmt& s, const Substitution& values);

bool mentions(const Expr& e, int64_t var_id);
bool mentions(const Stmt& s, int64_t var_id);
bool reads(const Expr& e, const Buffer& buffer);   // whether e loads from the buffer
bool writes(const Stmt& s, const Buffer& buffer);  // whether s stores to it, accumulates or reduces into it
// Whether a divisor or a shift count is not constant, so that only its context shows that the result is defined.
bool has_variable_divisor(const Expr& e);
bool has_variable_divisor(const Stmt& s);
bool holds_loop(const Stmt& s);       // or is one
bool holds_reduction(const Stmt& s);  // or is one

// A clone of the statement with fresh loop variables, Lets and allocated buffers: for duplicating statements.
Stmt refresh(const Stmt& s);

// All loops below, in order of appearance, outer before inner.
std::vector<const For*> loops_below(const Stmt& root);
// Whether all variables of e are among these.
bool uses_only(const Expr& e, const std::vector<Var>& vars);

}  // namespace gradloom::ir
