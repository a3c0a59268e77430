#ifndef GRADLOOM_TORCH_OVERRIDE_INDICES_H
#define GRADLOOM_TORCH_OVERRIDE_INDICES_H
// Lists of indices, x[:, i, j], and what adds at them: index_put_ with accumulate.
#include <ATen/core/List.h>
#include <ATen/ops/_index_put_impl_cpu_dispatch.h>

#include <optional>

#include "_override_kernels.h"

namespace gradloom_torch {

using Indices = c10::List<std::optional<Tensor>>;

// The entries of a list that are given. None: they are not of neighbouring dims.
struct GivenIndices {
  c10::SmallVector<Tensor, 4> all;
  int64_t dim = 0;  // of the first

  explicit GivenIndices(const Indices& list) {
    for (size_t i = 0; i < list.size(); ++i) {
      const std::optional<Tensor> entry = list.get(i);
      if (!entry || !entry->defined()) continue;
      if (all.empty()) dim = static_cast<int64_t>(i);
      if (static_cast<int64_t>(i) != dim + count() || count() == Handles::max_indices) {
        all.clear();
        return;
      }
      all.push_back(*entry);
    }
  }
  int64_t count() const { return static_cast<int64_t>(all.size()); }
  bool are_plain() const {
    return std::all_of(all.begin(), all.end(), [](const Tensor& t) { return is_plain(t); });
  }
  bool are_integers() const {
    return std::all_of(all.begin(), all.end(), [](const Tensor& t) { return is_index(t.scalar_type()); });
  }
  // The sizes that they broadcast to; none where they do not.
  std::optional<Dims> broadcast() const {
    Dims sizes;
    for (const Tensor& index : all) {
      if (index.dim() > static_cast<int64_t>(sizes.size())) sizes.insert(sizes.begin(), index.dim() - sizes.size(), 1);
      for (int64_t d = 1; d <= index.dim(); ++d) {
        int64_t& size = sizes[sizes.size() - d];
        if (size == 1) size = index.size(-d);
        if (index.size(-d) != size && index.size(-d) != 1) return {};
      }
    }
    return sizes;
  }
};

// The sizes of self[.., indices, ..], which broadcast to `sizes`.
inline Dims indexed_sizes(IntArrayRef self, const GivenIndices& indices, IntArrayRef sizes) {
  Dims all(self.begin(), self.begin() + indices.dim);
  all.append(sizes.begin(), sizes.end());
  all.append(self.begin() + indices.dim + indices.count(), self.end());
  return all;
}

// out[.., indices, ..] (+)= values.
inline Outcome add_indexed(const Tensor& out, const GivenIndices& indices, const Argument& values, bool accumulate) {
  if (indices.count() == 1) return add_slices(out, indices.dim, Argument(indices.all[0]), values, accumulate);
  const int64_t rank = out.dim();
  const Argument sizes(out.sizes(), &rank);
  std::vector<Argument> arguments;
  for (const Tensor& index : indices.all) arguments.emplace_back(index);
  std::vector<const DLTensor*> inputs{&sizes, &values};
  for (const Argument& argument : arguments) inputs.push_back(&argument);
  return outcome_of(
      call(Handles::index_grad, Handles::index_variant(indices.dim, indices.count()), accumulate, inputs, out));
}

// Negative values count from the end, as the library's do.
inline Outcome try_index_put(const Tensor& self, const Indices& list, const Tensor& values, bool accumulate) {
  if (!accumulate) return option;
  const GivenIndices indices(list);
  if (indices.count() == 0) return option;
  if (!is_plain(self) || !indices.are_plain() || !is_plain(values)) return kind;
  if (!is_float(self.scalar_type()) || values.scalar_type() != self.scalar_type() || !indices.are_integers())
    return dtype;
  const std::optional<Dims> at = indices.broadcast();
  if (!at || static_cast<int64_t>(list.size()) > self.dim()) return shape;
  const int64_t rank = self.dim() - indices.count() + static_cast<int64_t>(at->size());
  if (self.dim() > Handles::max_rank || rank > Handles::max_rank || values.dim() > rank || self.numel() == 0 ||
      !has_elements(*at) || values.numel() == 0)
    return shape;
  if (!put_pays(self, indices.dim, indices.count(), c10::multiply_integers(*at))) return slower;
  // Values are broadcast to the indexed shape.
  const Dims sizes = indexed_sizes(self.sizes(), indices, *at);
  Dims strides(rank, 0);
  for (int64_t d = 0; d < values.dim(); ++d) {
    const int64_t to = rank - values.dim() + d;
    if (values.size(d) == 1) continue;
    if (values.size(d) != sizes[to]) return shape;
    strides[to] = values.stride(d);
  }
  return add_indexed(self, indices,
                     Argument(const_cast<void*>(values.const_data_ptr()), values.scalar_type(), sizes, strides.data()),
                     true);
}

inline Tensor& index_put(Tensor& self, const Indices& indices, const Tensor& values, bool accumulate, bool unsafe) {
  const Outcome outcome = try_index_put(self, indices, values, accumulate);
  if (count(k_index_put, outcome)) return self;
  // An index that was found bad must not reach a kernel that does not look.
  return at::cpu::_index_put_impl_(self, indices, values, accumulate, unsafe && outcome != index);
}

}  // namespace gradloom_torch

#endif
