#ifndef GRADLOOM_TORCH_OVERRIDE_KERNELS_H
#define GRADLOOM_TORCH_OVERRIDE_KERNELS_H
// The kernels. Each either serves a call whole or leaves it, untouched, to the kernel that it overrides, which is
// called directly: so its results, exceptions and warnings are PyTorch's own. A call that the library refuses goes the
// same way: of what it may have written before it met a bad index nothing counts, since PyTorch's kernel raises too.
#include <ATen/Dispatch.h>
#include <ATen/OpMathType.h>
#include <ATen/WrapDimUtils.h>
#include <ATen/ops/embedding_dense_backward_cpu_dispatch.h>
#include <ATen/ops/gather_backward_compositeimplicitautograd_dispatch.h>
#include <ATen/ops/index_add_cpu_dispatch.h>
#include <ATen/ops/index_select_backward_compositeimplicitautograd_dispatch.h>
#include <ATen/ops/scatter_add_cpu_dispatch.h>
#include <ATen/ops/select_backward_compositeexplicitautogradnonfunctional_dispatch.h>
#include <ATen/ops/slice_backward_compositeexplicitautograd_dispatch.h>

#include <algorithm>
#include <vector>

#include "_override_checks.h"
#include "_override_choice.h"
#include "_override_counts.h"
#include "_override_library.h"

namespace gradloom_torch {

using c10::SymIntArrayRef;

inline Outcome outcome_of(gradloom_status status) {
  switch (status) {
    case GRADLOOM_OK:
      return served;
    case GRADLOOM_OUT_OF_RANGE:
      return index;
    default:
      return overlap_or_limit;
  }
}

// out[.., index[k], ..] (+)= values[.., k, ..] along `dim`, where values have the index's dims in the place of `dim`.
inline Outcome add_slices(const Tensor& out, int64_t dim, const Argument& index, const Argument& values,
                          bool accumulate) {
  const int64_t rank = out.dim();
  const Argument sizes(out.sizes(), &rank);
  if (rank == 1 && index.ndim == 1)  // the same, by kernels for single elements
    return outcome_of(call<3>(Handles::gather_elements_grad, 0, accumulate, {&values, &sizes, &index}, out));
  return outcome_of(call<3>(Handles::gather_grad, dim, accumulate, {&sizes, &index, &values}, out));
}

// An index that is one list, expanded over whole slices.
inline bool names_slices(const Tensor& out, int64_t dim, const Tensor& index) {
  if (index.dim() < 2) return false;
  for (int64_t d = 0; d < index.dim(); ++d)
    if (d != dim && (index.size(d) != out.size(d) || (index.stride(d) != 0 && index.size(d) != 1))) return false;
  return true;
}

// out[.., index[p], ..] (+)= values[p] along `dim`, for all positions p of the index; values have its sizes.
inline Outcome add_elements(const Tensor& out, int64_t dim, const Tensor& index, const Argument& values,
                            bool accumulate) {
  if (names_slices(out, dim, index)) {
    const int64_t stride = index.stride(dim), count = index.size(dim);
    const Argument list(const_cast<void*>(index.const_data_ptr()), index.scalar_type(), IntArrayRef(&count, 1),
                        &stride);
    return add_slices(out, dim, list, values, accumulate);
  }
  const int64_t rank = out.dim();
  const Argument sizes(out.sizes(), &rank), positions(index);
  return outcome_of(call<3>(Handles::gather_elements_grad, dim, accumulate, {&values, &sizes, &positions}, out));
}

inline bool wrap(int64_t& dim, int64_t rank) {
  if (rank == 0 || rank > Handles::max_rank || dim < -rank || dim >= rank) return false;
  if (dim < 0) dim += rank;
  return true;
}

inline bool has_elements(IntArrayRef sizes) {
  return std::all_of(sizes.begin(), sizes.end(), [](int64_t size) { return size > 0; });
}

// gather_backward: the whole of it, not zeros and then a scatter_add_ into them.

inline Outcome try_gather_backward(const Tensor& grad, const Tensor& self, int64_t dim, const Tensor& at,
                                   bool sparse_grad, Tensor& out) {
  if (!is_plain(grad) || !is_plain(self) || !is_plain(at)) return kind;
  if (is_recorded(grad)) return graph;
  if (sparse_grad) return option;
  if (!is_float(grad.scalar_type()) || !is_index(at.scalar_type())) return dtype;
  if (!wrap(dim, self.dim()) || at.dim() != self.dim() || grad.sizes() != at.sizes() || at.numel() == 0 ||
      self.numel() == 0)
    return shape;
  out = empty(self.sizes(), grad.scalar_type());
  return add_elements(out, dim, at, Argument(grad), false);  // that no index is negative, gather has seen
}

inline Tensor gather_backward(const Tensor& grad, const Tensor& self, int64_t dim, const Tensor& index,
                              bool sparse_grad) {
  Tensor out;
  if (count(k_gather_backward, try_gather_backward(grad, self, dim, index, sparse_grad, out))) return out;
  return at::compositeimplicitautograd::gather_backward(grad, self, dim, index, sparse_grad);
}

inline Outcome try_index_select_backward(const Tensor& grad, SymIntArrayRef self_sizes, int64_t dim, const Tensor& at,
                                         Tensor& out) {
  if (!is_plain(grad) || !is_plain(at)) return kind;
  if (is_recorded(grad)) return graph;
  if (!is_float(grad.scalar_type()) || !is_index(at.scalar_type())) return dtype;
  const auto sizes = c10::asIntArrayRefSlowOpt(self_sizes);
  if (!sizes) return graph;
  if (!wrap(dim, static_cast<int64_t>(sizes->size())) || at.dim() != 1 || !has_elements(*sizes) || at.numel() == 0)
    return shape;
  if (has_negative(at)) return index;
  out = empty(*sizes, grad.scalar_type());
  return add_slices(out, dim, Argument(at), Argument(grad), false);
}

inline Tensor index_select_backward(const Tensor& grad, SymIntArrayRef self_sizes, int64_t dim, const Tensor& index) {
  Tensor out;
  if (count(k_index_select_backward, try_index_select_backward(grad, self_sizes, dim, index, out))) return out;
  return at::compositeimplicitautograd::index_select_backward_symint(grad, self_sizes, dim, index);
}

// embedding_dense_backward

// Divides each row that is named by the number of times that it is.
template <class I, class T>
void scale_rows(const Tensor& indices, const Tensor& out) {
  const Tensor dense = indices.contiguous();
  const I* const rows = dense.const_data_ptr<I>();
  const int64_t count = dense.numel(), width = out.size(1);
  std::vector<int64_t> times(out.size(0));
  for (int64_t i = 0; i < count; ++i) ++times[rows[i]];
  T* const data = out.mutable_data_ptr<T>();
  for (int64_t i = 0; i < count; ++i) {
    const int64_t row = rows[i];
    if (times[row] > 1) {
      using Wide = at::opmath_type<T>;
      const Wide scale = Wide(1) / static_cast<Wide>(times[row]);
      for (int64_t j = 0; j < width; ++j)
        data[row * width + j] = static_cast<T>(static_cast<Wide>(data[row * width + j]) * scale);
    }
    times[row] = 0;
  }
}

inline Outcome try_embedding_dense_backward(const Tensor& grad, const Tensor& indices, int64_t num_weights,
                                            int64_t padding_idx, bool scale_grad_by_freq, Tensor& out) {
  if (!is_plain(grad) || !is_plain(indices)) return kind;
  if (!is_float(grad.scalar_type()) || !is_index(indices.scalar_type())) return dtype;
  if (grad.dim() != indices.dim() + 1 || grad.dim() > Handles::max_rank || num_weights <= 0 || grad.numel() == 0 ||
      grad.sizes().slice(0, indices.dim()) != indices.sizes())
    return shape;
  if (has_negative(indices)) return index;
  out = empty({num_weights, grad.size(-1)}, grad.scalar_type());
  const Outcome outcome = add_slices(out, 0, Argument(indices), Argument(grad), false);
  if (outcome != served) return outcome;
  if (scale_grad_by_freq)
    AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, out.scalar_type(), "scale_rows", [&] {
      if (indices.scalar_type() == at::kLong)
        scale_rows<int64_t, scalar_t>(indices, out);
      else
        scale_rows<int32_t, scalar_t>(indices, out);
    });
  if (padding_idx >= 0 && padding_idx < num_weights) {
    const size_t bytes = static_cast<size_t>(out.size(1)) * out.element_size();
    std::memset(static_cast<char*>(out.mutable_data_ptr()) + static_cast<size_t>(padding_idx) * bytes, 0, bytes);
  }
  return served;
}

inline Tensor embedding_dense_backward(const Tensor& grad, const Tensor& indices, int64_t num_weights,
                                       int64_t padding_idx, bool scale_grad_by_freq) {
  Tensor out;
  if (count(k_embedding_dense_backward,
            try_embedding_dense_backward(grad, indices, num_weights, padding_idx, scale_grad_by_freq, out)))
    return out;
  return at::cpu::embedding_dense_backward(grad, indices, num_weights, padding_idx, scale_grad_by_freq);
}

// What adds into a tensor that is there. `out`, where it is not `self`, is a copy of it that is made once the call is
// sure to be served, but for its indices' values.

enum class Into { self, copy };

inline Tensor copy_of(const Tensor& self) {
  Tensor copy = empty(self.sizes(), self.scalar_type());
  if (self.is_contiguous() && self.nbytes() <= 4096)
    std::memcpy(copy.mutable_data_ptr(), self.const_data_ptr(), self.nbytes());
  else
    copy.copy_(self);
  return copy;
}

// Where only PyTorch's adding is faster, a large copy in memory that was used before still is.
inline bool copies(Outcome outcome, const Tensor& self) { return outcome == slower && self.nbytes() >= 1 << 20; }

inline Outcome try_scatter_add(const Tensor& self, int64_t dim, const Tensor& at, const Tensor& src, Into into,
                               Tensor& out) {
  if (!is_plain(self) || !is_plain(at) || !is_plain(src)) return kind;
  if (!is_float(self.scalar_type()) || src.scalar_type() != self.scalar_type() || !is_index(at.scalar_type()))
    return dtype;
  if (!wrap(dim, self.dim()) || at.dim() != self.dim() || src.dim() != self.dim() || at.numel() == 0 ||
      self.numel() == 0)
    return shape;
  for (int64_t d = 0; d < at.dim(); ++d)
    if (at.size(d) > src.size(d) || (d != dim && at.size(d) > self.size(d))) return shape;
  if (names_slices(self, dim, at) ? !slices_pay(self, dim, at.size(dim)) : !elements_pay(self, dim, at)) return slower;
  if (has_negative(at)) return index;
  out = into == Into::copy ? copy_of(self) : self;
  // A smaller index goes with the leading part of src.
  return add_elements(
      out, dim, at,
      Argument(const_cast<void*>(src.const_data_ptr()), src.scalar_type(), at.sizes(), src.strides().data()), true);
}

inline Tensor scatter_add(const Tensor& self, int64_t dim, const Tensor& index, const Tensor& src) {
  Tensor out;
  const Outcome outcome = try_scatter_add(self, dim, index, src, Into::copy, out);
  if (count(k_scatter_add, outcome)) return out;
  if (!copies(outcome, self)) return at::cpu::scatter_add(self, dim, index, src);
  out = copy_of(self);
  return at::cpu::scatter_add_(out, dim, index, src);
}

inline Tensor& scatter_add_(Tensor& self, int64_t dim, const Tensor& index, const Tensor& src) {
  Tensor out;
  if (count(k_scatter_add, try_scatter_add(self, dim, index, src, Into::self, out))) return self;
  return at::cpu::scatter_add_(self, dim, index, src);
}

inline Outcome try_index_add(const Tensor& self, int64_t dim, const Tensor& at, const Tensor& source,
                             const at::Scalar& alpha, Into into, Tensor& out) {
  if (!is_plain(self) || !is_plain(at) || !is_plain(source)) return kind;
  if (!is_float(self.scalar_type()) || source.scalar_type() != self.scalar_type() || !is_index(at.scalar_type()))
    return dtype;
  if (!alpha.equal(1)) return option;
  if (!wrap(dim, self.dim()) || at.dim() != 1 || source.dim() != self.dim() || source.numel() == 0) return shape;
  for (int64_t d = 0; d < self.dim(); ++d)
    if (source.size(d) != (d == dim ? at.size(0) : self.size(d))) return shape;
  if (!slices_pay(self, dim, at.size(0))) return slower;
  if (has_negative(at)) return index;
  out = into == Into::copy ? copy_of(self) : self;
  return add_slices(out, dim, Argument(at), Argument(source), true);
}

inline Tensor index_add(const Tensor& self, int64_t dim, const Tensor& index, const Tensor& source,
                        const at::Scalar& alpha) {
  Tensor out;
  const Outcome outcome = try_index_add(self, dim, index, source, alpha, Into::copy, out);
  if (count(k_index_add, outcome)) return out;
  if (!copies(outcome, self)) return at::cpu::index_add(self, dim, index, source, alpha);
  out = copy_of(self);
  return at::cpu::index_add_(out, dim, index, source, alpha);
}

inline Tensor& index_add_(Tensor& self, int64_t dim, const Tensor& index, const Tensor& source,
                          const at::Scalar& alpha) {
  Tensor out;
  if (count(k_index_add, try_index_add(self, dim, index, source, alpha, Into::self, out))) return self;
  return at::cpu::index_add_(self, dim, index, source, alpha);
}

// Gradients of views

inline Outcome put_slice(const Argument& grad, IntArrayRef sizes, int64_t dim, int64_t start, int64_t end, int64_t step,
                         const Tensor& out) {
  const int64_t rank = out.dim(), one = 1;
  const Argument shape_of(sizes, &rank), starts({&start, 1}, &one), ends({&end, 1}, &one), axes({&dim, 1}, &one),
      steps({&step, 1}, &one);
  return outcome_of(call<6>(Handles::slice_grad, 0, false, {&grad, &shape_of, &starts, &ends, &axes, &steps}, out));
}

inline bool has_dtype(const Tensor& tensor) { return Argument::dlpack_dtype(tensor.scalar_type()).bits != 0; }

inline Outcome try_slice_backward(const Tensor& grad, IntArrayRef sizes, int64_t dim, int64_t start, int64_t end,
                                  int64_t step, Tensor& out) {
  if (!is_plain(grad)) return kind;
  if (!has_dtype(grad)) return dtype;
  const auto rank = static_cast<int64_t>(sizes.size());
  if (!wrap(dim, rank) || grad.dim() != rank || grad.numel() == 0 || !has_elements(sizes) || step < 1) return shape;
  const int64_t size = sizes[dim];
  const auto clamped = [size](int64_t at) { return std::clamp(at < 0 ? at + size : at, int64_t{0}, size); };
  start = clamped(start), end = std::max(start, clamped(end));
  for (int64_t d = 0; d < rank; ++d)
    if (grad.size(d) != (d == dim ? (end - start + step - 1) / step : sizes[d])) return shape;
  out = empty(sizes, grad.scalar_type());
  return put_slice(Argument(grad), sizes, dim, start, end, step, out);
}

inline Tensor slice_backward(const Tensor& grad, IntArrayRef sizes, int64_t dim, int64_t start, int64_t end,
                             int64_t step) {
  Tensor out;
  if (count(k_slice_backward, try_slice_backward(grad, sizes, dim, start, end, step, out))) return out;
  return at::compositeexplicitautograd::slice_backward(grad, sizes, dim, start, end, step);
}

inline Outcome try_select_backward(const Tensor& grad, IntArrayRef sizes, int64_t dim, int64_t at, Tensor& out) {
  if (!is_plain(grad)) return kind;
  if (!has_dtype(grad)) return dtype;
  const auto rank = static_cast<int64_t>(sizes.size());
  if (!wrap(dim, rank) || grad.dim() != rank - 1 || !has_elements(sizes)) return shape;
  if (at < -sizes[dim] || at >= sizes[dim]) return index;
  if (at < 0) at += sizes[dim];
  Dims dims(grad.sizes().begin(), grad.sizes().end()), strides(grad.strides().begin(), grad.strides().end());
  dims.insert(dims.begin() + dim, 1);
  strides.insert(strides.begin() + dim, 1);
  for (int64_t d = 0; d < rank; ++d)
    if (d != dim && dims[d] != sizes[d]) return shape;
  out = empty(sizes, grad.scalar_type());
  return put_slice(Argument(const_cast<void*>(grad.const_data_ptr()), grad.scalar_type(), dims, strides.data()), sizes,
                   dim, at, at + 1, 1, out);
}

inline Tensor select_backward(const Tensor& grad, IntArrayRef sizes, int64_t dim, int64_t index) {
  Tensor out;
  if (count(k_select_backward, try_select_backward(grad, sizes, dim, index, out))) return out;
  return at::compositeexplicitautogradnonfunctional::select_backward(grad, sizes, dim, index);
}

}  // namespace gradloom_torch

#endif
