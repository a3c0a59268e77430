#ifndef GRADLOOM_TORCH_OVERRIDE_INDEX_H
#define GRADLOOM_TORCH_OVERRIDE_INDEX_H
// The gradient of x[i], x[:, i] and x[i, j] for large x, whole: PyTorch's is zeros and then an index_put_ into them,
// which no kernel of its own shows as one op. So the forward op is recorded by a function of ours, where nothing else
// but plain evaluation with autograd is asked for; its own kernel does everything else.
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/index.h>
#include <ATen/ops/index_put.h>
#include <ATen/ops/new_zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include "_override_indices.h"

namespace gradloom_torch {

inline Outcome try_index_backward(const Tensor& grad, IntArrayRef sizes, const GivenIndices& indices, Tensor& out) {
  if (!is_plain(grad) || !indices.are_plain()) return kind;
  if (is_recorded(grad)) return graph;
  if (!is_float(grad.scalar_type())) return dtype;
  const std::optional<Dims> at = indices.broadcast();
  if (!at || grad.dim() > Handles::max_rank || grad.numel() == 0 ||
      grad.sizes() != IntArrayRef(indexed_sizes(sizes, indices, *at)))
    return shape;
  out = empty(sizes, grad.scalar_type());
  return add_indexed(out, indices, Argument(grad), false);
}

struct Index : torch::autograd::Function<Index> {
  static Tensor forward(torch::autograd::AutogradContext* context, const Tensor& self, int64_t dim,
                        const Indices& indices) {
    const at::AutoDispatchBelowADInplaceOrView below;
    const GivenIndices given(indices);
    context->save_for_backward({given.all.begin(), given.all.end()});
    context->saved_data["dim"] = dim;
    context->saved_data["sizes"] = self.sizes();
    return at::index(self, indices);
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& grads) {
    const Tensor& grad = grads[0];
    if (!grad.defined()) return {Tensor(), Tensor(), Tensor()};
    const std::vector<int64_t> sizes = context->saved_data["sizes"].toIntVector();
    Indices indices;
    indices.resize(context->saved_data["dim"].toInt());
    for (const Tensor& index : context->get_saved_variables()) indices.push_back(index);
    Tensor out;
    if (!count(k_index_backward, try_index_backward(grad, sizes, GivenIndices(indices), out)))
      out = at::index_put(grad.new_zeros(sizes), indices, grad, true);
    return {out, Tensor(), Tensor()};
  }
};

// Below it, zeros cost less than what recording costs more.
constexpr size_t large_bytes = size_t{1} << 18;

// PyTorch's own kernel above autograd: asked for before it is overridden.
inline c10::KernelFunction* index_kernel = nullptr;
inline const c10::OperatorHandle& index_op() {
  static const c10::OperatorHandle found = c10::Dispatcher::singleton().findSchemaOrThrow("aten::index", "Tensor");
  return found;
}

// What is not plain may have no sizes in numbers.
inline bool is_served(const Tensor& self, const GivenIndices& indices) {
  return c10::GradMode::is_enabled() && indices.count() > 0 && is_plain(self) && indices.are_plain() &&
         self.requires_grad() && self.nbytes() >= large_bytes && is_float(self.scalar_type()) &&
         indices.are_integers() && indices.dim + indices.count() <= self.dim() && !is_traced() &&
         !self.unsafeGetTensorImpl()->_fw_grad(0, self).defined();
}

inline Tensor index_forward(c10::DispatchKeySet keys, const Tensor& self, const Indices& indices) {
  if (const GivenIndices given(indices); is_served(self, given)) return Index::apply(self, given.dim, indices);
  return index_kernel->call<Tensor, const Tensor&, const Indices&>(index_op(), keys, self, indices);
}

}  // namespace gradloom_torch

#endif
