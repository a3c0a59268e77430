#pragma once
// What a kernel for a GPU looks like. Where threads wait for one another follows from the structure;
// passes/insert_barriers.cpp says it with barriers.
//
// The host part is made of block, if, let, alloc, serial loops, cooperative loops and grid loops. Its bounds,
// conditions and dims are scalar arithmetic (of any dtype: scalar_program.h) over scalars and its own variables only,
// so that a launcher evaluates them without the device. Each grid loop is one launch, its iterations are blocks; a
// launch without a block does nothing, its checks included; launches run in order. What is allocated in the host part
// is global scratch. passes/outline_kernels.cpp gives any nest this form: what needs memory to be decided is decided in
// the launches, a check around what may have no block is a launch of its own, and a loop over launches whose bounds lie
// in memory is done by one block. Refused: scratch whose size lies in memory, with no bound that holds outside the
// launch.
//
// A cooperative loop is a serial loop of the host part that is one launch: at most as many blocks as fit at once go
// through all its turns, each doing its iterations of each grid loop inside, and wait for one another in between. What
// is inside it, outside grid loops, is done by all threads alike, and is what the host part may be, but that it
// allocates nothing except per_block buffers; barriers of the grid stand here, and of the block, for threads that go on
// to another grid loop. The extents of its grid loops are known before it. A per_block buffer is
// used by grid loops from 0 over its first dim, each iteration the part that its number is the first index of: so many
// blocks must fit at once.
//
// The block part (inside a grid loop, outside thread and warp loops) is done by all threads of the block alike: the
// same values, the same way. Its stores and accumulates into shared and global buffers happen once a block. Thread and
// warp loops stand here, one after the other, possibly in serial loops and ifs: each begins when all threads have
// finished what came before, as far as it matters: barriers of the block stand here, too. Where a block has several
// iterations of a grid loop, its threads wait for one another between them. An iteration of a thread loop is a
// thread's; of a warp loop, a warp's. An allocated buffer is shared; or in registers: then each thread has the same
// copy, and thread and warp loops only read it; or per_thread: then thread loops from 0 use it, each iteration the part
// that its number is the first index of; or per_warp: then fragment loops in warp loops from 0 use it likewise.
//
// The warp part (inside a warp loop, outside lane loops) is to the lanes of a warp what the block part is to its
// threads; barriers of the warp stand here. Lane loops do: vector loops whose iterations are lanes, each statement done
// for all lanes before the next. An accumulate goes lane after lane where lanes meet. So do pairs of fragment loops,
// one directly in the other, from 0 over multiples of 16 rows and of 4 pairs of columns: iteration (i, j) is the lane's
// that holds the elements [w, i, 2 j] and [w, i, 2 j + 1] of any per_warp buffer of that many rows and columns, and of
// such a buffer touches nothing else, the two as a vector (passes/pair_fragments.cpp); no loop stands in it. Or else a
// matrix_unit loop stands directly in a pair of them, over columns one by one, from 0 over a multiple of 16, and is
// what fragment_product.h takes: one fma into a per_warp buffer of f32 of two elements of f16, or of bf16, in constant
// strides.
//
// The thread part (inside a thread or lane loop, or a pair of fragment loops) is ordinary code; buffers allocated there
// are the thread's own.
#include <string>
#include <vector>

#include "gradloom/stmt.h"

namespace gradloom::ir {

// Whether a loop of the kernel is bound to a GPU, or it has a barrier.
bool is_gpu(const Kernel& kernel);

// Empty when the kernel has the form above; else what does not fit. No parallel loop is left in it, and what is
// allocated in blocks has constant dims.
std::string gpu_structure_error(const Kernel& kernel);

// Whether a loop at the end of this path may be bound so: grid loops around thread and warp loops, these around lane
// loops (in warp loops only).
std::string gpu_binding_error(const std::vector<Stmt>& path, const For& loop, ForKind kind);

// How many blocks do a cooperative loop at the least: as many as the largest per_block buffer in it has parts.
int64_t least_blocks(const For& cooperative);
// Whether a grid loop in it is known to have one iteration at most for each of so many blocks.
bool each_block_once(const For& grid, int64_t blocks);

}  // namespace gradloom::ir
