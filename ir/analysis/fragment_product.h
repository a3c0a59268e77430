#pragma once
// The IR form of a product on matrix units: sums[w, i, j] += a(i, k) * b(k, j) in two fragment loops over i and j and a
// matrix_unit loop over k.
#include <string>

#include "gradloom/stmt.h"

namespace gradloom::ir {

// The instruction's shape: 16 rows by 8 columns of sums, 16 along k.
inline constexpr int64_t unit_rows = 16, unit_columns = 8, unit_depth = 16;

struct FragmentProduct {
  Buffer sums;
  int64_t rows = 0, columns = 0, depth = 0;  // of the tile
  struct Operand {
    Buffer buffer;
    Expr begin;                      // element offset in the buffer of i = k = 0 (j = k = 0)
    int64_t along = 0, along_k = 0;  // strides in elements: along rows (of b: columns), and along k
  } a, b;
};

// Matches the product in a fragment loop over rows. On failure sums is absent, and `mismatch` gives the reason if the
// loop contains a matrix_unit loop.
FragmentProduct match_fragment_product(const For& rows, std::string& mismatch);

}  // namespace gradloom::ir
