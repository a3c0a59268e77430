#pragma once
// Matrix products on a GPU: tiles of C to blocks, operands staged in shared memory along k, a register tile a thread. The same sums as author_matmul's: an
// element is its first value, then Fma along k in order.
#include "ops/matmul.h"

namespace gradloom {

// for <prefix>_bm { for <prefix>_bn { a tile } }. Tiles are smaller where there would be too few for all multiprocessors.
void author_matmul_blocks(ir::KernelBuilder& builder, const Matmul& product, const ir::Target& target);

// Binds every product of these prefixes that was written so.
void schedule_matmul_blocks(ir::Schedule& schedule, const std::string& prefix);

}  // namespace gradloom
