#pragma once
// How `linear` and `Ranges::expand` take an expression apart.
#include "ir/analysis/ranges.h"

namespace gradloom::ir {

struct Linearizer {
  const Ranges* scope = nullptr;  // lets to put in, and variables that can have one value only
  Linear out;
  int64_t keep = 0;  // a variable that stays, even so
  void add(const Expr& e, int64_t factor);

 private:
  void add(const Linear& form, int64_t factor);
};

// Whether e keeps its value when statements run: it loads from inputs only.
bool is_stable(const Expr& e);

}  // namespace gradloom::ir
