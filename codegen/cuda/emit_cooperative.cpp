// A cooperative loop as one function: its turns are taken inside the kernel, its grid loops are phases. What one block
// wrote another sees after a barrier of the grid: gl_sync_grid orders memory, and such buffers are no __restrict__
// parameters.
#include "codegen/cuda/emitter.h"
#include "ir/analysis/verify_gpu.h"
#include "ir/rewrite.h"

namespace gradloom::codegen {

void FunctionEmitter::cooperative_function(const ir::For& loop) {
  parameters_.push_back("unsigned* gl_grid");
  function_.arguments.push_back({CudaArgument::barrier, 0});
  function_.cooperative = ir::least_blocks(loop);
  ir::walk(loop.body, [&](const ir::Stmt& s) {
    if (const auto* n = s.as<ir::Store>()) exchanged_.insert(n->buffer->id);
    if (const auto* n = s.as<ir::Accumulate>()) exchanged_.insert(n->buffer->id);
  });
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
