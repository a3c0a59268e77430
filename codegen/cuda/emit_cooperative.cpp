// A cooperative loop as one function: its turns are taken inside the kernel, its grid loops are phases, and all blocks
// meet where phases clash. What one block wrote another sees after they met: gl_sync_grid orders memory, and such
// buffers are no __restrict__ parameters.
#include "codegen/cuda/emitter.h"
#include "ir/rewrite.h"

namespace gradloom::codegen {

void FunctionEmitter::cooperative_function(const ir::For& loop) {
  parameters_.push_back("unsigned* gl_grid");
  function_.arguments.push_back({CudaArgument::barrier, 0});
  function_.cooperative = 1;
  ir::walk(loop.body, [&](const ir::Stmt& s) {
    if (const auto* n = s.as<ir::Store>()) exchanged_.insert(n->buffer->id);
    if (const auto* n = s.as<ir::Accumulate>()) exchanged_.insert(n->buffer->id);
  });
  part_ = Part::cooperative;
  serial_loop(loop);
}

void FunctionEmitter::phase(const ir::For& grid) {
  const Touched all = touched(grid.body);
  const bool clash = all.clashes(since_barrier_);
  before(all);
  const Touched outside = since_barrier_;
  const int64_t shared = shared_;
  const std::optional<int64_t> extent = ir::as_int(grid.extent);
  const bool strides = !extent || *extent > function_.cooperative;  // else each block has one iteration at most
  part_ = Part::block;
  since_barrier_ = {};
  if (!strides) {
    // The last phase's threads may still use the block's memory.
    if (!clash) barrier();
    open("if (gl_block() < " + std::to_string(*extent) + ") ");
  }
  grid_loop(grid, strides);
  if (!strides) close();
  part_ = Part::cooperative;
  since_barrier_ = outside;
  most_shared_ = std::max(most_shared_, shared_);
  shared_ = shared;
}

}  // namespace gradloom::codegen
