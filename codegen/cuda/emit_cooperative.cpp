// Emits a cooperative loop as one function: the loop runs inside the kernel, and each grid loop in its body is a phase.
// A block's writes become visible to other blocks at a grid-wide barrier: gl_sync_grid orders memory, and buffers
// exchanged between blocks are not __restrict__ parameters.
#include "codegen/cuda/emitter.h"
#include "ir/analysis/verify_gpu.h"
#include "ir/rewrite.h"

namespace gradloom::codegen {

void FunctionEmitter::cooperative_function(const ir::For& loop) {
  parameters_.push_back("unsigned* gl_grid");
  function_.arguments.push_back({CudaArgument::barrier, 0});
  function_.cooperative = ir::least_blocks(loop);
  part_ = Part::cooperative;
  serial_loop(loop);
}

void FunctionEmitter::phase(const ir::For& grid) {
  const int64_t shared = shared_;
  const bool once = ir::each_block_once(grid, function_.cooperative);
  part_ = Part::block;
  if (once) open("if (gl_block() < " + std::to_string(*ir::as_int(grid.extent)) + ") ");
  grid_loop(grid, !once);
  if (once) close();
  part_ = Part::cooperative;
  most_shared_ = std::max(most_shared_, shared_);
  shared_ = shared;
}

}  // namespace gradloom::codegen
