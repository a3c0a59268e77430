// Prefetching for tile_product: partial sums that are stored in C between k blocks come from a far cache, in short
// pieces of many rows, so those of the next tile are prefetched.
#include <algorithm>

#include "gradloom/target.h"
#include "ir/index_math.h"
#include "ir/rewrite.h"
#include "ir/schedule/tile_product.h"

namespace gradloom::ir {

Stmt fetch_next(const Product& p, const ProductTiles& t, const Expr& m0, const Expr& n0) {
  std::vector<Stmt> all;
  const int64_t line = line_bytes / size_of(p.sum->dtype), last = t.columns() - 1;
  const int64_t down = t.along_rows ? 0 : t.rows, along = t.along_rows ? t.columns() : 0;
  for (int i = 0; i < t.rows; ++i)
    for (int64_t c = 0; c - line < last; c += line) {
      std::vector<Expr> index;
      for (const Expr& e : p.plain->index)
        index.push_back(substitute(
            e, {{p.m->var.id, index_add(m0, down + i)}, {p.n->var.id, index_add(n0, along + std::min(c, last))}}));
      all.push_back(evaluate(prefetch(p.plain->buffer, std::move(index), 1)));
    }
  return block(std::move(all));
}

}  // namespace gradloom::ir
