#pragma once
// Extents where loops degenerate, and tensors of them in the layout that a call was drawn with.
#include <array>
#include <cmath>
#include <optional>

#include "gradloom/schedule_common.h"
#include "tests/support/op_calls.h"
#include "tests/support/sweep_factors.h"

namespace gradloom::sweep {

struct Limits {
  bool run = false;
  Traffic traffic = few_bytes;
  ir::Target target;
  DType dtype = DType::f32;
  Determinism level = Determinism::sequential;
};

class ShapeDraw {
 public:
  ShapeDraw(Numbers& random, std::vector<Extent> wanted, Limits limits, Strides strides)
      : random_(random), wanted_(std::move(wanted)), limits_(std::move(limits)), strides_(strides) {}

  std::vector<Extent> used() const {
    std::vector<Extent> all;
    for (const Dim& d : dims_)
      if (d.extent) all.push_back(*d.extent);
    return all;
  }
  Strides made() const { return made_; }  // the layout that some input has

 protected:
  struct Dim {
    int64_t n = 1;
    std::optional<Extent> extent;  // none: made larger or smaller
    bool wanted = false;
  };

  // The tile sizes of the ops' schedules: a strip of columns or a cache line, a tile, a block of a sum.
  int64_t length(Extent e, const std::string& op) const {
    const int64_t bytes = size_of(limits_.dtype), v = std::max<int64_t>(limits_.target.vector_bytes / bytes, 2);
    int64_t strip_length = 64, tile_length = 256;
    if (op == "BroadcastGrad") strip_length = random_.one_in(2) ? 16 : 32;
    if (op == "SliceGrad") strip_length = ir::line_bytes / bytes, tile_length = 512 / bytes;
    if (op.starts_with("GRU")) strip_length = 16, tile_length = 64;
    if (op == "BroadcastGradientArgs") return std::array<int64_t, 13>{0, 1, 2, 3, 3, 4, 5, 5, 6, 7, 7, 8, 9}[e];
    if (limits_.target.gpu && op.starts_with("Gather"))
      strip_length = int64_t{2} << random_.below(4), tile_length = 32 << random_.below(4);
    switch (e) {
      case zero:
        return 0;
      case one:
        return 1;
      case two:
        return 2;
      case three:
        return 3;
      case below_vector:
      case vector:
      case above_vector:
        return v + (e - vector);
      case below_strip:
      case strip:
      case above_strip:
        return strip_length + (e - strip);
      default:
        return tile_length + (e - tile);
    }
  }

  // `count` extents, including the forced ones; small ones more often, as are most dims of real calls.
  void draw_dims(const std::string& op, size_t count) {
    dims_.assign(count, {});
    for (Dim& d : dims_) {
      const auto e = static_cast<Extent>(random_.one_in(2) ? (random_.one_in(4) ? 0 : 1 + random_.below(3))
                                                           : random_.below(above_tile + 1));
      d = {length(e, op), e, false};
    }
    for (const Extent e : wanted_) {
      Dim& d = dims_[random_.below(count)];
      if (d.wanted) continue;
      d = {length(e, op), e, true};
    }
  }

  // Reduces the call to a size that can be run, or raises it to the requested traffic, by dims other than the forced
  // ones.
  template <class Elements>
  bool fit(const Elements& elements, int64_t most) {
    std::vector<size_t> free;
    for (size_t i = 0; i < dims_.size(); ++i)
      if (!dims_[i].wanted) free.push_back(i);
    const int64_t bytes = size_of(limits_.dtype);
    int64_t target = 0;
    if (limits_.traffic == parallel_traffic) target = parallel_bytes / bytes;
    if (limits_.traffic == streamed) target = 4 * limits_.target.l2_bytes / bytes + 1;
    const int64_t limit = limits_.run ? std::max(most, 2 * target) : std::max<int64_t>(2 * target, int64_t{1} << 16);
    for (int tries = 0; elements() > limit; ++tries) {
      if (free.empty() || tries > 64) return false;
      Dim& d = dims_[free[random_.below(free.size())]];
      if (d.n > 3) d = {static_cast<int64_t>(1 + random_.below(3)), {}, false}, d.extent = static_cast<Extent>(d.n);
    }
    if (target == 0 || elements() == 0 || elements() >= target) return target == 0 || elements() != 0;
    for (int tries = 0; tries < 8; ++tries) {
      if (free.empty()) return false;
      Dim& d = dims_[free[random_.below(free.size())]];
      const Dim old = d;
      d.extent.reset();
      for (int doubled = 0; doubled < 40 && elements() < target; ++doubled) d.n = 2 * d.n;
      if (!random_.one_in(3)) d.n += static_cast<int64_t>(random_.below(3));
      if (elements() >= target && elements() <= std::max(limit, 4 * target)) return true;
      d = old;
    }
    return false;
  }
  template <class Elements>
  bool fit(const Elements& elements) {
    return fit(elements, most_run);
  }
  int64_t n(size_t d) const { return dims_[d].n; }

  // Values, or indices below `bound`, in the layout drawn for the call: in all of its inputs, or some.
  Tensor tensor(DType dtype, const Dims& dims, std::optional<int64_t> bound = {}) {
    Dims strides = dense_strides(dims);
    int64_t offset = 0, span = element_count(dims);
    if (dims.size() > 0 && strides_ != dense && !random_.one_in(4)) {
      int64_t step = strides_ == gapped && random_.one_in(2) ? 2 + static_cast<int64_t>(random_.below(2)) : 1;
      span = 1;
      for (int d = dims.size(); d-- > 0;) {
        strides[d] = step;
        if (strides_ == expanded && random_.one_in(2)) strides[d] = 0;
        if (strides_ == negative && (random_.one_in(2) || dims.size() == 1))
          strides[d] = -step, offset += step * std::max<int64_t>(dims[d] - 1, 0);
        span += std::abs(strides[d]) * std::max<int64_t>(dims[d] - 1, 0);
        if (strides[d] != 0) step *= std::max<int64_t>(dims[d], 1);
        if (strides_ == gapped && !random_.one_in(3)) step += 1 + static_cast<int64_t>(random_.below(3));
      }
      if (element_count(dims) == 0) span = 0, offset = 0;  // strides that reach far, without elements
      if (!is_dense(dims, strides)) made_ = strides_;
    }
    static const double nothing[8] = {};
    if (!limits_.run) return Tensor::borrow(static_cast<const void*>(nothing), dtype, dims, strides);
    testing_ops::Random values(random_.next());
    const bool off = random_.one_in(4);  // one element past an aligned address
    Tensor memory =
        bound ? values.indices(dtype, {span + 1}, std::max<int64_t>(*bound, 1)) : filled(values, dtype, span + 1);
    return memory.view(dims, strides, offset + (off ? 1 : 0));
  }
  // Integral values where the order of a sum is unspecified, so that every order gives the same bits.
  Tensor filled(testing_ops::Random& values, DType dtype, int64_t count) {
    if (dtype == DType::boolean || whole_numbers_) {
      std::vector<int> numbers(static_cast<size_t>(count));
      for (int& number : numbers)
        number = dtype == DType::boolean ? static_cast<int>(random_.below(2)) : static_cast<int>(random_.below(17)) - 8;
      return Tensor::of(dtype, {count}, numbers);
    }
    return values.values(dtype, {count});
  }

  int64_t product(size_t from, size_t to) const {
    int64_t p = 1;
    for (size_t d = from; d < to; ++d) p *= n(d);
    return p;
  }
  DType index_type() { return random_.one_in(2) ? DType::i32 : DType::i64; }

  static constexpr int64_t most_run = 3000;  // elements of a call that is run, unless it is large enough for threads

  Numbers& random_;
  const std::vector<Extent> wanted_;
  Limits limits_;
  const Strides strides_;
  Strides made_ = dense;
  bool whole_numbers_ = false;
  std::vector<Dim> dims_;
};

}  // namespace gradloom::sweep
