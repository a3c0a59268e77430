#pragma once
// The structure of a lowered GPU kernel. Synchronisation points follow from it; passes/insert_barriers.cpp makes them
// explicit with barriers. For example:
//
//   for t in 0 .. steps cooperative {       // host part: one launch for all iterations
//     barrier grid                          // iterations of t conflict: they write y
//     for b in 0 .. blocks grid {           // its body is the block part: all threads of a block
//       alloc tile: shared f32[256]
//       for i in 0 .. 256 thread {          // its body is a thread part
//         tile[i] = x[t, b * 256 + i]
//       }
//       barrier block                       // the warps read what other threads wrote
//       for w in 0 .. 8 warp {              // its body is the warp part: all lanes of a warp
//         for l in 0 .. 32 lane {           // its body is a thread part
//           y[b * 256 + w * 32 + l] = tile[255 - (w * 32 + l)]
//         }
//         barrier warp
//       }
//     }
//   }
//
// Host part: the kernel's body outside grid loops.
//   - It consists of block, if, let, alloc, serial loops, cooperative loops and grid loops. Its bounds, conditions and
//     dims are scalar arithmetic (of any dtype: scalar_program.h) over scalars and its own variables only, so that a
//     launcher evaluates them without the device.
//   - Each grid loop is one launch, and its iterations are blocks. A launch without blocks does nothing, including its
//     checks. Launches run in order.
//   - An allocation in the host part is global scratch. Refused: scratch whose size is read from memory, with no bound
//     that holds outside the launch.
//   - passes/outline_kernels.cpp transforms any nest into this form: decisions that need memory are made inside the
//     launches, a check around launches that may have no block is a launch of its own, and a loop over launches with
//     bounds in memory is executed by a single block.
//
// Cooperative loop: a serial loop of the host part that is one launch.
//   - At most as many blocks as can be resident at once run all its iterations; each executes its iterations of each
//     grid loop inside, with grid-wide synchronisation in between.
//   - Its body outside grid loops is executed redundantly by all threads. It obeys the rules of the host part, except
//     that it allocates per_block buffers only. Barriers of the grid are legal here, and barriers of the block, for
//     threads that continue to another grid loop.
//   - The extents of its grid loops are known before it starts.
//   - A per_block buffer is accessed in grid loops that run from 0 over its first dim; each iteration accesses only the
//     part with its own number as first index. That many blocks must be resident at once.
//
// Block part: inside a grid loop, outside thread and warp loops.
//   - It is executed uniformly by all threads of the block: the same values, the same control flow. Its stores and
//     accumulates into shared and global buffers happen once per block.
//   - It contains thread and warp loops, one after the other, possibly in serial loops and ifs. Each starts when all
//     threads have finished the preceding statements it depends on or conflicts with: barriers of the block are legal
//     here.
//   - Where a block executes several iterations of a grid loop, its threads synchronise between them.
//   - An iteration of a thread loop runs on one thread, of a warp loop on one warp.
//   - An allocated buffer is one of:
//       shared;
//       in registers: replicated per thread with equal contents, only read by thread and warp loops;
//       per_thread: accessed in thread loops from 0, each iteration only the part with its own number as first index,
//         of at most 1024 parts;
//       per_warp: accessed in fragment loops in warp loops from 0, likewise.
//
// Warp part: inside a warp loop, outside lane loops. It is to the lanes of a warp what the block part is to the threads
// of a block; barriers of the warp are legal here. It contains lane loops and pairs of fragment loops.
//   - A lane loop is a vector loop whose iterations are lanes: each statement runs for all lanes before the next. An
//     accumulate executes lane after lane where lanes conflict.
//   - A pair of fragment loops, one directly in the other, runs from 0 over multiples of 16 rows and of 4 pairs of
//     columns. Iteration (i, j) runs on the lane that holds the elements [w, i, 2 j] and [w, i, 2 j + 1] of any
//     per_warp buffer of that many rows and columns. It accesses no other element of such a buffer, and these two as a
//     vector (passes/pair_fragments.cpp). It contains no loop.
//   - Or a matrix_unit loop is directly in such a pair, which then runs over columns one by one. It runs from 0 over a
//     multiple of 16 and has the form that fragment_product.h matches: one fma into a per_warp buffer of f32, of two
//     elements of f16, or of bf16, at constant strides.
//
// Thread part: inside a thread or lane loop, or a pair of fragment loops. It is ordinary code; buffers allocated here
// are private to the thread.
#include <string>
#include <vector>

#include "gradloom/stmt.h"

namespace gradloom::ir {

inline constexpr int64_t most_block_threads = 1024;  // as many as any GPU runs in a block

// Whether a loop of the kernel is bound to a GPU, or it contains a barrier.
bool is_gpu(const Kernel& kernel);

// Empty when the kernel has the form above; else the violation. No parallel loop is left in it, and allocations in
// blocks have constant dims.
std::string gpu_structure_error(const Kernel& kernel);

// Whether a loop at the end of this path may be bound so: grid loops around thread and warp loops, these around lane
// loops (in warp loops only).
std::string gpu_binding_error(const std::vector<Stmt>& path, const For& loop, ForKind kind);

// The minimum number of blocks of a cooperative loop: the largest first dim of a per_block buffer in it.
int64_t least_blocks(const For& cooperative);
// Whether each of this many blocks is known to execute at most one iteration of a grid loop in a cooperative loop.
bool each_block_once(const For& grid, int64_t blocks);

}  // namespace gradloom::ir
