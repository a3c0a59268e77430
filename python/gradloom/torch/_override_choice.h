#ifndef GRADLOOM_TORCH_OVERRIDE_CHOICE_H
#define GRADLOOM_TORCH_OVERRIDE_CHOICE_H
// Whether adding into a tensor that is there pays. PyTorch's kernels add each value where it goes; the library sums the
// values of an element first, which pays where they are many, strided or of 16 bits. The bounds are measured; they
// depend on dtype and sizes alone, so that a call has the same bits every time.
#include <ATen/core/Tensor.h>

namespace gradloom_torch {

// The dims from `dim` on, `count` of them, and those before and after, multiplied.
struct Split {
  int64_t outer = 1, size = 1, inner = 1;

  Split(at::IntArrayRef sizes, int64_t dim, int64_t count = 1) {
    for (int64_t d = 0; d < static_cast<int64_t>(sizes.size()); ++d)
      (d < dim ? outer : d < dim + count ? size : inner) *= sizes[d];
  }
};

inline bool is_half(const at::Tensor& tensor) { return tensor.element_size() == 2; }

// An index for each element.
inline bool elements_pay(const at::Tensor& out, int64_t dim, const at::Tensor& index) {
  return is_half(out) || (Split(out.sizes(), dim).inner >= 64 && index.numel() >= out.numel());
}

// `count` indices for whole slices.
inline bool slices_pay(const at::Tensor& out, int64_t dim, int64_t count) {
  const Split at(out.sizes(), dim);
  if (is_half(out)) {
    if (at.inner == 1) return at.outer > 1 || at.size <= 16 * count;
    return at.inner >= 16 && at.inner <= 128;
  }
  if (at.inner == 1) return at.outer >= 16 && (count >= at.size || (out.numel() >= 1 << 20 && 4 * count >= at.size));
  return at.outer == 1 && at.inner >= 16 && at.inner <= 64 && (at.inner == 64 || at.size <= 8 * count);
}

// index_put_: PyTorch adds large ones on several threads in any order, so that those are always served. `count` indices
// of `axes` dims.
inline bool put_pays(const at::Tensor& out, int64_t dim, int64_t axes, int64_t count) {
  const Split at(out.sizes(), dim, axes);
  if (at.outer * count * at.inner >= 32768) return true;
  if (axes > 1 && at.outer * at.inner == 1) return at.size <= 4 * count;
  return at.inner == 1 ? at.outer > 1 || at.size <= 16 * count : at.inner >= 16;
}

}  // namespace gradloom_torch

#endif
