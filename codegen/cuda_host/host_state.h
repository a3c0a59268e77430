#pragma once
// The state shared by the executor and the kernels that it loads. Defined once: the prelude's text is made from it.

// `wait` suspends the thread until all threads that it synchronises with have arrived: those of the block, the warp or
// the grid. `site` is the line in the kernel's text, which distinguishes the call sites of waiting threads. Returns the
// primitive's result.
#define GRADLOOM_HOST_STATE                                                                              \
  enum GlWait {                                                                                          \
    gl_wait_block,                                                                                       \
    gl_wait_warp,                                                                                        \
    gl_wait_ballot,                                                                                      \
    gl_wait_match,                                                                                       \
    gl_wait_shuffle,                                                                                     \
    gl_wait_matrix,                                                                                      \
    gl_wait_matrix_rows,                                                                                 \
    gl_wait_shared,                                                                                      \
    gl_wait_grid                                                                                         \
  };                                                                                                     \
  /* A lane's part of a product on matrix units. */                                                      \
  struct GlMatrixPiece {                                                                                 \
    float* sums;                                                                                         \
    const unsigned *a, *b;                                                                               \
    bool bf16;                                                                                           \
  };                                                                                                     \
  /* A lane's row of a matrix, and where its elements of four go. */                                     \
  struct GlMatrixRow {                                                                                   \
    unsigned* piece;                                                                                     \
    const unsigned short* row;                                                                           \
    bool transposed;                                                                                     \
  };                                                                                                     \
  struct GlHostState {                                                                                   \
    int thread;                                                                                          \
    long long block, blocks;                                                                             \
    unsigned char* shared;                                                                               \
    long long shared_bytes;                                                                              \
    unsigned long long (*wait)(GlHostState*, GlWait kind, int site, unsigned long long value, int lane); \
  };

namespace gradloom::codegen {

GRADLOOM_HOST_STATE

}  // namespace gradloom::codegen
