#pragma once
// Matrix products on a GPU: tiles of C to thread blocks, operands staged in shared memory along k.
//   - A register tile per thread. The same sums as author_matmul's: an element is its first value, then Fma along k in
//     order.
//   - Where the target has matrix units (Target::matrix_units) and both operands are f16, or both bf16: a tile of
//     fragments per warp. Products are exact and sums f32, but a device adds each 16 of them in its own order and with
//     its own roundings: run_to_run, not sequential.
#include "gradloom/matmul.h"
#include "ops/patterns/planned_loops.h"

namespace gradloom {

// The loops of a product by thread blocks.
struct MatmulBlocks {
  int64_t threads = 0;         // per block
  std::vector<ir::Loop> grid;  // outermost first; fused into one
  // Loops that stage operands in shared memory: pairs that are fused and distributed over the threads.
  std::vector<std::vector<ir::Loop>> staged;
  PlannedLoops inside;  // loops within a block
};

// for <prefix>_t0 { for <prefix>_t1 { a tile } }
// Tiles are smaller where there would be too few for all multiprocessors. Where sums need not be in order, a long k is
// split instead (split-k), and the partial sums are added in order, by loops <prefix>_tm and <prefix>_tn that are left
// unbound.
MatmulBlocks author_matmul_blocks(ir::KernelBuilder& builder, const Matmul& product, const ir::Target& target,
                                  bool in_order = true);

// `count` products of one A with concatenated Bs: column n of product g is column g * product.n + n of b and of first.
// One thread has the `count` sums of (m, n), and passes them to `store` together, in place of product.store. That may
// be much code: a thread has few elements, one where extents are not constant.
using Epilogue = std::function<void(ir::Expr m, ir::Expr n, const std::vector<ir::Expr>& sums)>;
MatmulBlocks author_matmul_blocks(ir::KernelBuilder& builder, const Matmul& product, int64_t count,
                                  const Epilogue& store, const ir::Target& target);

void schedule_matmul_blocks(ir::Schedule& schedule, const MatmulBlocks& product);

// Products on matrix units (matmul_fragments.cpp).
bool fits_matrix_units(const Matmul& product, const ir::Target& target);
MatmulBlocks author_matmul_fragments(ir::KernelBuilder& builder, const Matmul& product, const ir::Target& target);

namespace matmul_blocks {

// Whether `value` is contiguous in memory along `v`.
bool runs_along(const ir::Expr& value, const ir::Var& v);

}  // namespace matmul_blocks

}  // namespace gradloom
