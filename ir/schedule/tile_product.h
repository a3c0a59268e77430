#pragma once
// Internal to Schedule::tile_product: the matched product, and the panels that its operands are packed into.
#include <functional>
#include <string>
#include <unordered_set>
#include <vector>

#include "gradloom/schedule.h"
#include "ir/schedule/site.h"

namespace gradloom::ir {

// for m { for n { alloc sum { sum = first; for k { sum fma= (value, factor) } rest } } }, also with sum += value *
// factor. The sum may be an element of any other buffer, c[i, j] = first; for k { c[i, j] fma= ... } rest: it is then
// made in `sum`, a buffer of its own, and stored before the rest; without `first` it starts from the element's value.
struct Product {
  const For *m = nullptr, *n = nullptr, *k = nullptr;
  Buffer sum;
  Expr first;
  Expr a, b;            // a does not depend on n, b not on m
  bool a_first = true;  // a is the accumulate's value, b its factor
  bool fused = true;    // each step is rounded once
  Stmt rest;
  // The epilogue, when it is one unguarded store of the sum itself to a buffer of its dtype.
  const Store* plain = nullptr;
};
// Throws a refusal when the loop is not such a nest.
Product match_product(const Site& site, const std::string& step);
// ... when its elements are not proved independent of one another.
void require_independent(const Product& product, const Site& site, const std::string& step);

// e with a guard on each load with an index that mentions one of the variables; `otherwise` is 0.
struct EdgeGuard {
  Var var;
  Expr end;  // var < end
};
Expr guard_loads(const Expr& e, const std::vector<EdgeGuard>& edges);

// The memory stride of an expression's loads in a variable: 1 when some load has unit stride, 0 when none depends on
// it, -1 otherwise.
int64_t step_of(const Expr& e, int64_t var_id);

// A panel holds `width` contiguous lanes of an operand for every k: buffer[panel, k, lane]. Panels [first, first +
// count) are filled together.
struct Panel {
  Buffer buffer;
  Expr first, count = 1;  // a count that is no constant is a loop, else the panels' code is repeated
  int64_t step = 0;       // lanes of the operand from one panel to the next
  int64_t width = 0;
  int group = 0;  // lanes that are moved together; divides the width
  std::function<Expr(Expr lane, Expr k)> element;
  Expr first_lane, end_lane;  // of the operand: the first panel's first lane, and the end of all
  bool whole = false;         // every lane is before the end
  Expr first_k, k_count;      // of the operand: [first_k, first_k + k_count) goes to rows 0, 1, ...
  bool transpose = false;     // k is the contiguous axis: read by vectors along k and transposed
  bool brief = false;         // less code is preferred to faster code
};
Stmt pack_panel(const Panel& panel, const std::string& name);

// The tiled product. With `b_before`, `around` wraps a loop enclosing the nest in the allocation and packing of all of
// B; `kind`: of the loop over panels.
struct TiledProduct {
  Stmt nest;
  std::vector<Schedule::Loop> along_k;  // the tiles' k loops, in order of appearance
  std::function<Stmt(const Stmt& body, ForKind kind)> around;
};
TiledProduct tile(const Product& product, const ProductTiles& tiles, const Ranges& scope, bool b_before);

// Prefetches the partial sums of the tile after the one at (m0, n0), from where the epilogue stores them.
Stmt fetch_next(const Product& product, const ProductTiles& tiles, const Expr& m0, const Expr& n0);

// A loop over [0, extent), or just its body when that is one iteration.
Stmt product_loop(const std::string& name, const Expr& extent, ForKind kind, const std::function<Stmt(Expr)>& body);

}  // namespace gradloom::ir
