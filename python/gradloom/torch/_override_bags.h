#ifndef GRADLOOM_TORCH_OVERRIDE_BAGS_H
#define GRADLOOM_TORCH_OVERRIDE_BAGS_H
// _embedding_bag_dense_backward: the gradient of nn.EmbeddingBag's table.
#include <ATen/ops/_embedding_bag_dense_backward_cpu_dispatch.h>

#include <cstring>
#include <optional>

#include "_override_kernels.h"

namespace gradloom_torch {

enum BagMode : int64_t { bag_sum, bag_mean, bag_max };

// Indices and where the bags begin, of PyTorch's bag of each index. Without those of `padding`, where it is 0 or more.
template <class I>
struct Bags {
  std::vector<I> starts, kept;  // kept: the indices, where some are left out

  // False: the bags are out of order.
  bool read(const Tensor& indices, const Tensor& bag_of, int64_t bags, int64_t padding) {
    const Tensor dense = indices.contiguous(), owners = bag_of.contiguous();
    const I *const index = dense.const_data_ptr<I>(), *const owner = owners.const_data_ptr<I>();
    const int64_t count = dense.numel();
    starts.reserve(bags + 1);
    if (padding >= 0) kept.reserve(count);
    for (int64_t p = 0; p < count; ++p) {
      if (owner[p] < 0 || owner[p] >= bags || static_cast<int64_t>(starts.size()) > owner[p] + 1) return false;
      while (static_cast<int64_t>(starts.size()) <= owner[p])
        starts.push_back(static_cast<I>(padding >= 0 ? static_cast<int64_t>(kept.size()) : p));
      if (padding >= 0 && index[p] != padding) kept.push_back(index[p]);
    }
    starts.resize(bags + 1, static_cast<I>(padding >= 0 ? static_cast<int64_t>(kept.size()) : count));
    return true;
  }
};

template <class I>
Outcome add_bags(const Tensor& grad, const Tensor& indices, const Tensor& bag_of, const Tensor& chosen, bool scale,
                 int64_t mode, const Tensor& weights, int64_t padding, const Tensor& out) {
  Bags<I> bags;
  const bool filters = padding >= 0 && mode != bag_sum;
  if (!bags.read(indices, bag_of, grad.size(0), filters ? padding : -1)) return index;
  const at::ScalarType type = indices.scalar_type();
  const int64_t rank = 2, one = 1, starts = grad.size(0) + 1,
                count = filters ? static_cast<int64_t>(bags.kept.size()) : indices.numel();
  const int64_t stride = filters ? 1 : indices.stride(0);
  const Argument sizes(out.sizes(), &rank), values(grad),
      at(filters ? bags.kept.data() : const_cast<void*>(indices.const_data_ptr()), type, {&count, 1}, &stride),
      offsets(bags.starts.data(), type, {&starts, 1}, &one);
  std::optional<Argument> factors, from;
  if (weights.defined()) factors.emplace(weights);
  if (mode == bag_max) from.emplace(chosen);
  const Outcome outcome = outcome_of(
      call<6>(Handles::embedding_bag_grad, Handles::bag_variant(mode, scale), false,
              {&sizes, &at, &offsets, &values, factors ? &*factors : nullptr, from ? &*from : nullptr}, out));
  if (outcome == served && mode == bag_sum && padding >= 0 && padding < out.size(0)) out.select(0, padding).zero_();
  return outcome;
}

inline Outcome try_bag_backward(const Tensor& grad, const Tensor& indices, const Tensor& bag_of, const Tensor& chosen,
                                int64_t num_weights, bool scale, int64_t mode, const std::optional<Tensor>& weights,
                                int64_t padding, Tensor& out) {
  const Tensor factors = weights && weights->defined() ? *weights : Tensor();
  if (!is_plain(grad) || !is_plain(indices) || !is_plain(bag_of) || (factors.defined() && !is_plain(factors)) ||
      (mode == bag_max && !is_plain(chosen)))
    return kind;
  if (!is_float(grad.scalar_type()) || !is_index(indices.scalar_type()) ||
      bag_of.scalar_type() != indices.scalar_type() ||
      (factors.defined() && factors.scalar_type() != grad.scalar_type()) ||
      (mode == bag_max && !is_index(chosen.scalar_type())))
    return dtype;
  if (mode < bag_sum || mode > bag_max || (scale && mode == bag_max) || (factors.defined() && mode != bag_sum))
    return option;
  if (grad.dim() != 2 || indices.dim() != 1 || bag_of.sizes() != indices.sizes() || grad.numel() == 0 ||
      indices.numel() == 0 || num_weights <= 0 || (mode == bag_max && chosen.sizes() != grad.sizes()))
    return shape;
  if (has_negative(indices)) return index;
  out = empty({num_weights, grad.size(1)}, grad.scalar_type());
  return indices.scalar_type() == at::kLong
             ? add_bags<int64_t>(grad, indices, bag_of, chosen, scale, mode, factors, padding, out)
             : add_bags<int32_t>(grad, indices, bag_of, chosen, scale, mode, factors, padding, out);
}

inline Tensor embedding_bag_dense_backward(const Tensor& grad, const Tensor& indices, const Tensor& offset2bag,
                                           const Tensor& bag_size, const Tensor& maximum_indices, int64_t num_weights,
                                           bool scale_grad_by_freq, int64_t mode,
                                           const std::optional<Tensor>& per_sample_weights, int64_t padding_idx) {
  Tensor out;
  if (count(k_embedding_bag_dense_backward,
            try_bag_backward(grad, indices, offset2bag, maximum_indices, num_weights, scale_grad_by_freq, mode,
                             per_sample_weights, padding_idx, out)))
    return out;
  return at::cpu::_embedding_bag_dense_backward(grad, indices, offset2bag, bag_size, maximum_indices, num_weights,
                                                scale_grad_by_freq, mode, per_sample_weights, padding_idx);
}

}  // namespace gradloom_torch

#endif
