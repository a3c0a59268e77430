#pragma once
// Statements of a random program: they write within bounds, read what was written, and restore the scope.
#include <functional>
#include <optional>

#include "tests/support/random_program_expr.h"
#include "tests/support/random_program_parameters.h"

namespace gradloom::ir::testing {

class ProgramStmt : ProgramDraw {
 public:
  ProgramStmt(std::mt19937_64& random, ProgramScope& scope)
      : ProgramDraw(random), scope_(scope), parameters_(random, scope), draw_(random, scope) {}

  RandomProgram build();

 private:
  // An extent of at most `most`, whatever its operands are.
  struct Extent {
    Expr e;
    int64_t most;
  };
  // The element to write; under a guard, out-of-range lanes are inactive.
  struct Place {
    Array array;
    std::vector<Expr> index;
    Expr guard;
    int lanes = 1;
  };
  void declare();
  void scoped(const std::function<void()>& body);
  void body();
  void statement(int depth);
  void value_let();
  void chain();
  void evaluated();
  Extent extent();
  void loop();
  void branch();
  void contradiction();
  void checked();
  Stmt statements(const std::function<void()>& body);
  void local();
  void fill(const Array& array);
  std::optional<Place> place(bool accumulates);
  void store_somewhere();
  void accumulate_somewhere();
  void reduce_somewhere();

  ProgramScope& scope_;
  ProgramParameters parameters_;
  ProgramExpr draw_;
  int budget_ = 0, nesting_ = 0;
};

}  // namespace gradloom::ir::testing
