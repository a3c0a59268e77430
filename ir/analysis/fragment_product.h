#pragma once
// A product on matrix units as it is written: sums[w, i, j] += a(i, k) * b(k, j) in two fragment loops over i and j and
// a matrix_unit loop over k.
#include <string>

#include "gradloom/stmt.h"

namespace gradloom::ir {

// What the instructions take at once: 16 rows by 8 columns of sums, 16 along k.
inline constexpr int64_t unit_rows = 16, unit_columns = 8, unit_depth = 16;

struct FragmentProduct {
  Buffer sums;
  int64_t rows = 0, columns = 0, depth = 0;  // of the tile
  struct Operand {
    Buffer buffer;
    Expr begin;                      // where in the buffer, in elements, that of i = k = 0 (j = k = 0) lies
    int64_t along = 0, along_k = 0;  // elements from one row (of b: column) to the next, and from one k to the next
  } a, b;
};

// The product that a fragment loop over rows holds. Else sums is absent, and `mismatch` says why, where a matrix_unit
// loop is in it.
FragmentProduct match_fragment_product(const For& rows, std::string& mismatch);

}  // namespace gradloom::ir
