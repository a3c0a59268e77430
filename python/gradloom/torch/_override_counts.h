#ifndef GRADLOOM_TORCH_OVERRIDE_COUNTS_H
#define GRADLOOM_TORCH_OVERRIDE_COUNTS_H
// What was served, and why the rest was left to PyTorch's own kernel. Both lists are read by Python through their
// names: a new entry needs no change there.
#include <atomic>
#include <cstdint>

namespace gradloom_torch {

enum Kernel {
  k_gather_backward,
  k_index_select_backward,
  k_embedding_dense_backward,
  k_embedding_bag_dense_backward,
  k_scatter_add,
  k_index_add,
  k_index_backward,
  k_index_put,
  k_slice_backward,
  k_select_backward,
  kernel_count,
};
inline constexpr const char* kernel_names[kernel_count] = {
    "gather_backward",
    "index_select_backward",
    "embedding_dense_backward",
    "_embedding_bag_dense_backward",
    "scatter_add",
    "index_add",
    "index_backward",
    "index_put",
    "slice_backward",
    "select_backward",
};

enum Outcome {
  served,
  graph,   // the call itself is recorded: create_graph, forward-mode derivatives, a transform or a mode that is active
  kind,    // a tensor that is not a plain one of the CPU: a subclass, another device or layout, a lazy conjugate
  dtype,   // of values or indices
  option,  // sparse_grad, an alpha, indices of dims apart, no accumulation
  shape,   // no elements, rank 0, or shapes that PyTorch's kernel broadcasts or refuses
  index,   // a negative or too large index, which PyTorch's kernel takes or refuses in its own words
  slower,  // PyTorch's kernel is faster for such sizes: _override_choice.h
  overlap_or_limit,  // what the library refused otherwise: memory that overlaps, no memory, no compiler
  outcome_count,
};
inline constexpr const char* outcome_names[outcome_count] = {
    "served", "graph", "kind", "dtype", "option", "shape", "index", "slower", "refused",
};

inline std::atomic<uint64_t> counts[kernel_count][outcome_count];

// Whether it was served.
inline bool count(Kernel kernel, Outcome outcome) {
  counts[kernel][outcome].fetch_add(1, std::memory_order_relaxed);
  return outcome == served;
}

}  // namespace gradloom_torch

#endif
