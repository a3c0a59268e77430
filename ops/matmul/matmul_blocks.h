#pragma once
// Matrix products on a GPU: tiles of C to blocks, operands staged in shared memory along k.
//   - a register tile a thread: the same sums as author_matmul's, an element is its first value, then Fma along k in
//   order
//   - where the target has matrix units (Target::matrix_units) and both operands are f16, or both bf16: a tile of
//   fragments a warp. Products are exact and sums
//     f32, but a device adds each 16 of them in its own order and with its own roundings: run_to_run, not sequential
#include "gradloom/matmul.h"
#include "ops/patterns/planned_loops.h"

namespace gradloom {

// The loops of a product by blocks.
struct MatmulBlocks {
  int64_t threads = 0;         // of a block
  std::vector<ir::Loop> grid;  // from the outside in: become one
  // How operands come to shared memory: two loops that become one, and that threads share.
  std::vector<std::vector<ir::Loop>> staged;
  PlannedLoops inside;  // of a block
};

// for <prefix>_t0 { for <prefix>_t1 { a tile } }. Tiles are smaller where there would be too few for all
// multiprocessors; where sums need not be in order, a long k is cut instead, and the sums of its parts are added in
// order, by loops <prefix>_tm and <prefix>_tn that are bound to nothing yet.
MatmulBlocks author_matmul_blocks(ir::KernelBuilder& builder, const Matmul& product, const ir::Target& target,
                                  bool in_order = true);

// `count` products of one A, whose Bs lie side by side: column n of product g is b's and first's column g * product.n +
// n. One thread has the `count` sums of (m, n), and they go to `store` together, in place of product.store. That may be
// much code: a thread has few elements, one where extents are no constants.
using Epilogue = std::function<void(ir::Expr m, ir::Expr n, const std::vector<ir::Expr>& sums)>;
MatmulBlocks author_matmul_blocks(ir::KernelBuilder& builder, const Matmul& product, int64_t count,
                                  const Epilogue& store, const ir::Target& target);

void schedule_matmul_blocks(ir::Schedule& schedule, const MatmulBlocks& product);

// The second way (matmul_fragments.cpp).
bool fits_matrix_units(const Matmul& product, const ir::Target& target);
MatmulBlocks author_matmul_fragments(ir::KernelBuilder& builder, const Matmul& product, const ir::Target& target);

namespace matmul_blocks {

// Whether neighbours along `v` are neighbours in memory.
bool runs_along(const ir::Expr& value, const ir::Var& v);

}  // namespace matmul_blocks

}  // namespace gradloom
