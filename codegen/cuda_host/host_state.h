#pragma once
// What the executor and the kernels that it loads share. One definition: the prelude's text is made from it.

// `wait` stops the thread until the others it waits for have come: all of the block, or all lanes of the warp. `site`
// is the line of the kernel's text, so that threads which wait at different places are told apart. Gives the word's
// result.
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
