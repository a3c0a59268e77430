#ifndef GRADLOOM_TORCH_OVERRIDE_INDEX_H
#define GRADLOOM_TORCH_OVERRIDE_INDEX_H
// The gradient of x[i] and x[:, i] for large x, whole: PyTorch's is zeros and then an index_put_ into them, which no
// kernel of its own shows as one op. So the forward op is recorded by a function of ours, where nothing else but plain
// evaluation with autograd is asked for; its own kernel does everything else.
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/index.h>
#include <ATen/ops/index_put.h>
#include <ATen/ops/new_zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include <optional>

#include "_override_kernels.h"

namespace gradloom_torch {

using Indices = c10::List<std::optional<Tensor>>;

inline Outcome try_index_backward(const Tensor& grad, IntArrayRef sizes, int64_t dim, const Tensor& at, Tensor& out) {
  if (!is_plain(grad) || !is_plain(at)) return kind;
  if (is_recorded(grad)) return graph;
  if (!is_float(grad.scalar_type())) return dtype;
  if (grad.dim() > Handles::max_rank || grad.numel() == 0 ||
      grad.sizes() != IntArrayRef(indexed_sizes(sizes, dim, at.sizes())))
    return shape;
  out = empty(sizes, grad.scalar_type());
  return add_slices(out, dim, Argument(at), Argument(grad), false);
}

struct Index : torch::autograd::Function<Index> {
  static Tensor forward(torch::autograd::AutogradContext* context, const Tensor& self, const Tensor& at, int64_t dim,
                        const Indices& indices) {
    const at::AutoDispatchBelowADInplaceOrView below;
    context->save_for_backward({at});
    context->saved_data["dim"] = dim;
    context->saved_data["sizes"] = self.sizes();
    return at::index(self, indices);
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& grads) {
    const Tensor& grad = grads[0];
    if (!grad.defined()) return {Tensor(), Tensor(), Tensor(), Tensor()};
    const int64_t dim = context->saved_data["dim"].toInt();
    const std::vector<int64_t> sizes = context->saved_data["sizes"].toIntVector();
    const Tensor at = context->get_saved_variables()[0];
    Tensor out;
    if (!count(k_index_backward, try_index_backward(grad, sizes, dim, at, out))) {
      Indices indices;
      indices.resize(dim);
      indices.push_back(at);
      out = at::index_put(grad.new_zeros(sizes), indices, grad, true);
    }
    return {out, Tensor(), Tensor(), Tensor()};
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
inline bool is_served(const Tensor& self, const OneIndex& one) {
  return c10::GradMode::is_enabled() && one.index.defined() && is_plain(self) && is_plain(one.index) &&
         self.requires_grad() && self.nbytes() >= large_bytes && is_float(self.scalar_type()) &&
         is_index(one.index.scalar_type()) && one.dim < self.dim() && !is_traced() &&
         !self.unsafeGetTensorImpl()->_fw_grad(0, self).defined();
}

inline Tensor index_forward(c10::DispatchKeySet keys, const Tensor& self, const Indices& indices) {
  if (const OneIndex one(indices); is_served(self, one)) return Index::apply(self, one.index, one.dim, indices);
  return index_kernel->call<Tensor, const Tensor&, const Indices&>(index_op(), keys, self, indices);
}

}  // namespace gradloom_torch

#endif
