#pragma once
// Transposes square tiles in registers.
#include <string>
#include <utility>
#include <vector>

#include "gradloom/stmt.h"

namespace gradloom::ir {

// By log2(n) rounds of pairwise shuffles; each round's values are lets, which `wrap` puts around their user.
class Transposer {
 public:
  explicit Transposer(std::string name) : name_(std::move(name)) {}
  Expr named(const Expr& e);  // e, evaluated once
  // Row i of the result holds lane i of every row; n rows of n lanes, a power of two.
  std::vector<Expr> transpose(std::vector<Expr> rows);
  Stmt wrap(Stmt body) const;

 private:
  std::vector<std::pair<Var, Expr>> lets_;
  std::string name_;
};

}  // namespace gradloom::ir
