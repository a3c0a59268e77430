#pragma once
// Plain C++ loops of the nests, and scatters made fast by hand: prefetched, staged, partitioned, or kept in registers.
// One thread, with this machine's vectors.
#include "cli/bench/nest_cases.h"

namespace gradloom::cli::loops {

void relu_grad(void* const* buffers, const int64_t* n);
void softmax_grad(void* const* buffers, const int64_t* n);
void layer_norm_grad(void* const* buffers, const int64_t* n);
void row_sum(void* const* buffers, const int64_t* n);
void column_sum(void* const* buffers, const int64_t* n);
void stencil(void* const* buffers, const int64_t* n);
void transpose(void* const* buffers, const int64_t* n);
void pool_grad(void* const* buffers, const int64_t* n);
void product(void* const* buffers, const int64_t* n);  // with its loops in the order that compilers make vectors of
void fma_product(void* const* buffers, const int64_t* n);
void embedding_bag(void* const* buffers, const int64_t* n);
void max_pool_grad(void* const* buffers, const int64_t* n);
void histogram(void* const* buffers, const int64_t* n);
void scatter_nd(void* const* buffers, const int64_t* n);
void segment_sum(void* const* buffers, const int64_t* n);
void csr_transposed(void* const* buffers, const int64_t* n);
void bilinear_grad(void* const* buffers, const int64_t* n);
void column_scatter(void* const* buffers, const int64_t* n);

void tuned_embedding_bag(void* const* buffers, const int64_t* n);
void tuned_few_bins(void* const* buffers, const int64_t* n);
void tuned_many_bins(void* const* buffers, const int64_t* n);
void tuned_scatter_nd(void* const* buffers, const int64_t* n);
void tuned_segment_sum(void* const* buffers, const int64_t* n);
void tuned_csr_transposed(void* const* buffers, const int64_t* n);
void tuned_bilinear_grad(void* const* buffers, const int64_t* n);
void tuned_column_scatter(void* const* buffers, const int64_t* n);

}  // namespace gradloom::cli::loops
