#ifndef GRADLOOM_TORCH_OVERRIDE_CHECKS_H
#define GRADLOOM_TORCH_OVERRIDE_CHECKS_H
// What a call's tensors must be for a kernel of the library's to take it.
#include <ATen/core/Tensor.h>
#include <c10/core/GradMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/stable/c/shim.h>

#include <algorithm>
#include <atomic>

namespace gradloom_torch {

using at::IntArrayRef;
using at::Tensor;
using Dims = c10::SmallVector<int64_t, 8>;

inline bool is_float(at::ScalarType dtype) {
  return dtype == at::kFloat || dtype == at::kDouble || dtype == at::kBFloat16 || dtype == at::kHalf;
}
inline bool is_index(at::ScalarType dtype) { return dtype == at::kLong || dtype == at::kInt; }

// A dense tensor in the CPU's memory that means what its bytes say: no subclass, no transform's wrapper, no lazy
// conjugate or negative.
inline bool is_plain(const Tensor& tensor) {
  constexpr c10::DispatchKeySet allowed({c10::DispatchKey::CPU, c10::DispatchKey::AutogradCPU,
                                         c10::DispatchKey::ADInplaceOrView, c10::DispatchKey::AutocastCPU});
  return tensor.defined() && (tensor.key_set().raw_repr() & ~allowed.raw_repr()) == 0;
}

// Of kernels that stand above autograd: a mode or a transform is active.
inline bool is_traced() {
  const c10::DispatchKeySet included = c10::impl::tls_local_dispatch_key_set().included_;
  return (included.raw_repr() & ~c10::default_included_set.raw_repr()) != 0;
}

// Something else than plain evaluation is asked for.
inline bool is_recorded(const Tensor& grad) {
  if (is_traced()) return true;
  if (c10::GradMode::is_enabled() && grad.requires_grad()) return true;
  return grad.unsafeGetTensorImpl()->_fw_grad(0, grad).defined();
}

template <class T>
bool has_negative(const T* data, int64_t count) {
  std::atomic<bool> found = false;
  struct Span {
    const T* data;
    std::atomic<bool>& found;
  } span{data, found};
  const auto scan = [](int64_t begin, int64_t end, void* context) {
    const Span& it = *static_cast<Span*>(context);
    T signs = 0;
    for (int64_t i = begin; i < end; ++i) signs |= it.data[i];
    if (signs < 0) it.found.store(true, std::memory_order_relaxed);
  };
  constexpr int64_t grain = 1 << 15;
  if (count <= grain)
    scan(0, count, &span);
  else
    torch_parallel_for(0, count, grain, scan, &span);
  return found;
}

// The library counts negative indices from the end, as ONNX does.
template <class T>
bool has_negative(const Tensor& index) {
  const T* const data = index.const_data_ptr<T>();
  // Memory that is read more than once along an axis is looked at once.
  c10::SmallVector<std::pair<int64_t, int64_t>, 8> axes;  // stride, size
  for (int64_t d = 0; d < index.dim(); ++d)
    if (index.stride(d) != 0 && index.size(d) != 1) axes.emplace_back(index.stride(d), index.size(d));
  std::sort(axes.begin(), axes.end());
  int64_t span = 1;
  size_t dense = 0;
  for (; dense < axes.size() && axes[dense].first == span; ++dense) span *= axes[dense].second;
  const size_t loops = axes.size() - dense;
  Dims position(loops, 0);
  for (int64_t offset = 0;;) {
    if (has_negative(data + offset, span)) return true;
    size_t loop = 0;
    for (; loop < loops; ++loop) {
      offset += axes[dense + loop].first;
      if (++position[loop] < axes[dense + loop].second) break;
      offset -= axes[dense + loop].first * axes[dense + loop].second;
      position[loop] = 0;
    }
    if (loop == loops) return false;
  }
}

inline bool has_negative(const Tensor& index) {
  return index.scalar_type() == at::kLong ? has_negative<int64_t>(index) : has_negative<int32_t>(index);
}

}  // namespace gradloom_torch

#endif
