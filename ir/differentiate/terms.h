#pragma once
// Accumulates into an adjoint, with what stands around them.
#include <unordered_set>
#include <vector>

#include "ir/differentiate/accesses.h"
#include "ir/differentiate/forward.h"
#include "ir/rewrite.h"

namespace gradloom::ir {

// Below a scope.
struct Term {
  std::vector<Enclosing> path;  // outermost first
  size_t first_loop = 0;        // in the path
  Stmt stmt;
  const Accumulate& node() const { return *stmt.as<Accumulate>(); }
  const Stmt& nest() const { return first_loop < path.size() ? path[first_loop].stmt : stmt; }
};

// Those into `sums` in s, in the order of the text.
std::vector<Term> terms_of(const std::vector<Stmt>& scope, const Buffer& sums, Accesses& accesses);

bool is_empty(const Stmt& s);
bool is_idle(const Stmt& s);  // a wrapper or condition around nothing

// Drops chosen statements, and those that do nothing any more. `after` follows the statement `place`. What does not
// write `sums` is none of either.
class ReplaceTerms : public Rewriter {
 public:
  ReplaceTerms(const Buffer& sums, Accesses& accesses) : sums_(sums), accesses_(accesses) {}
  std::unordered_set<const StmtNode*> dropped;
  const StmtNode* place = nullptr;
  Stmt after;

  Stmt of(const Stmt& s);
  std::vector<Stmt> of(std::vector<Stmt> scope);

 private:
  using Rewriter::rewrite;
  Stmt placed(const Stmt& was, const Stmt& now) const;
  Stmt rewrite(const Block& n, const Stmt& self) override;
  Stmt rewrite(const For& n, const Stmt& self) override;
  Stmt rewrite(const Let& n, const Stmt& self) override;
  Stmt rewrite(const Alloc& n, const Stmt& self) override;
  Stmt rewrite(const Check& n, const Stmt& self) override;
  Stmt rewrite(const If& n, const Stmt& self) override;
  Stmt rewrite(const Store&, const Stmt& self) override { return self; }
  Stmt rewrite(const Accumulate&, const Stmt& self) override { return self; }

  const Buffer sums_;
  Accesses& accesses_;
};

}  // namespace gradloom::ir
