#pragma once
// The inputs and attributes of a drawn call, of every op.
#include <cmath>
#include <optional>

#include "tests/support/declared_calls.h"
#include "tests/support/sweep_extents.h"

namespace gradloom::sweep {

using testing_ops::Call;

class Shapes : public ShapeDraw {
 public:
  using ShapeDraw::ShapeDraw;

  uint32_t outputs_wanted = ~0u;

  // False where the draw yields no call.
  bool make(Call& call, DType dtype) {
    if (call.op == "GatherElementsGrad") return gather_elements(call, dtype);
    if (call.op == "GatherGrad") return gather(call, dtype);
    if (call.op == "BroadcastGrad") return broadcast(call, dtype);
    if (call.op == "SliceGrad") return slice(call, dtype);
    if (call.op == "BroadcastGradientArgs") return broadcast_args(call);
    if (call.op == "EmbeddingBagGrad") return embedding_bag(call, dtype);
    if (call.op == "IndexGrad") return index(call, dtype);
    if (call.op == "SparseGatherGrad") return sparse_gather(call, dtype);
    for (const DeclaredOps* both : all_declared_ops()) {
      if (call.op == both->declaration().name) return declared(call, dtype, both->declaration(), false);
      if (call.op == both->declaration().gradient.name) return declared(call, dtype, both->declaration(), true);
    }
    return gru(call, dtype);
  }

 private:
  bool gather_elements(Call& call, DType dtype) {
    call.whole_numbers = whole_numbers_ = limits_.level != Determinism::sequential;
    const size_t outer = random_.below(3), inner = random_.below(3), rank = outer + 1 + inner;
    draw_dims(call.op, rank + 1);
    const auto elements = [&] {
      int64_t rows = 1;
      for (size_t d = 0; d < rank; ++d) rows *= d == outer ? 1 : n(d);
      return rows * (n(outer) + n(rank));
    };
    if (!fit(elements)) return false;
    Dims shape, index;
    for (size_t d = 0; d < rank; ++d) {
      shape.push_back(n(d));
      const bool shorter = d != outer && n(d) > 0 && random_.one_in(6);
      index.push_back(d == outer ? n(rank)
                      : shorter  ? static_cast<int64_t>(random_.below(static_cast<uint64_t>(n(d))))
                                 : n(d));
    }
    call.inputs = {tensor(dtype, index), testing_ops::shape_tensor(shape), tensor(index_type(), index, n(outer))};
    call.attributes = {{"axis", static_cast<int64_t>(outer)}};
    return true;
  }

  bool gather(Call& call, DType dtype) {
    call.whole_numbers = whole_numbers_ = limits_.level != Determinism::sequential;
    const size_t rank = 1 + random_.below(4), axis = random_.below(rank),
                 index_rank = random_.one_in(2) ? 1 : random_.below(4);
    draw_dims(call.op, rank + index_rank);
    Dims shape, index, dy;
    const auto elements = [&] {
      int64_t rows = 1, indices = 1;
      for (size_t d = 0; d < rank; ++d) rows *= d == axis ? 1 : n(d);
      for (size_t d = 0; d < index_rank; ++d) indices *= n(rank + d);
      return rows * (n(axis) + indices);
    };
    if (!fit(elements)) return false;
    for (size_t d = 0; d < rank; ++d) shape.push_back(n(d));
    for (size_t d = 0; d < index_rank; ++d) index.push_back(n(rank + d));
    for (size_t d = 0; d < rank; ++d)
      d == axis ? dy.append(std::span<const int64_t>(index.data(), index.size())) : dy.push_back(n(d));
    call.inputs = {testing_ops::shape_tensor(shape), tensor(index_type(), index, n(axis)), tensor(dtype, dy)};
    call.attributes = {{"axis", static_cast<int64_t>(axis)}};
    return true;
  }

  bool sparse_gather(Call& call, DType dtype) {
    if (!gather(call, dtype)) return false;
    const int64_t axis = std::get<int64_t>(call.attributes.at("axis"));
    call.attributes.clear();
    if (const int64_t rows = integer_element(call.inputs[0], 0); rows > 0 && random_.one_in(2))
      call.attributes["padding_idx"] = static_cast<int64_t>(random_.below(static_cast<uint64_t>(rows)));
    return axis == 0;
  }

  bool embedding_bag(Call& call, DType dtype) {
    draw_dims(call.op, 4);
    if (!fit([&] { return n(1) * (n(0) + n(2)) + n(3) + (limits_.run ? n(3) * n(1) / 4 : 0); })) return false;
    const int64_t rows = n(0), columns = n(1), bags = n(2), count = n(3);
    if (count > 0 && (rows == 0 || bags == 0)) return false;
    const int mode = static_cast<int>(random_.below(3));
    const bool last = random_.one_in(2);
    std::vector<int64_t> offsets(static_cast<size_t>(bags), 0);
    for (int64_t& o : offsets) o = static_cast<int64_t>(random_.below(static_cast<uint64_t>(count) + 1));
    std::sort(offsets.begin(), offsets.end());
    if (bags > 0) offsets[0] = 0;
    if (last) offsets.push_back(count);
    call.inputs = {testing_ops::shape_tensor({rows, columns}), tensor(index_type(), {count}, rows),
                   Tensor::of(index_type(), {std::ssize(offsets)}, offsets), tensor(dtype, {bags, columns})};
    if (mode == 0 && random_.one_in(2)) call.inputs.push_back(tensor(dtype, {count}));
    if (mode == 2) call.inputs.push_back({}), call.inputs.push_back(tensor(index_type(), {bags, columns}, rows));
    call.attributes = {{"mode", std::string(mode == 0   ? "sum"
                                            : mode == 1 ? "mean"
                                                        : "max")},
                       {"include_last_offset", int64_t{last}},
                       {"scale_grad_by_freq", static_cast<int64_t>(mode != 2 && random_.one_in(4))}};
    if (rows > 0 && random_.one_in(2))
      call.attributes["padding_idx"] = static_cast<int64_t>(random_.below(static_cast<uint64_t>(rows)));
    return mode != 2 || rows > 0 || bags * columns == 0;
  }

  bool index(Call& call, DType dtype) {
    const size_t rank = 1 + random_.below(4), broadcast = random_.below(3);
    draw_dims(call.op, rank + broadcast);
    std::vector<int64_t> axes;
    for (size_t d = 0; d < rank; ++d)
      if (random_.one_in(2)) axes.push_back(static_cast<int64_t>(d));
    if (axes.empty()) axes.push_back(0);
    const auto is_indexed = [&](size_t d) { return std::find(axes.begin(), axes.end(), d) != axes.end(); };
    const auto elements = [&] {
      int64_t slice = 1, destinations = 1;
      for (size_t d = 0; d < rank; ++d) (is_indexed(d) ? destinations : slice) *= n(d);
      return slice * (destinations + product(rank, rank + broadcast));
    };
    if (!fit(elements)) return false;
    Dims shape, all, dy;
    for (size_t d = 0; d < rank; ++d) shape.push_back(n(d));
    for (size_t k = 0; k < broadcast; ++k) all.push_back(n(rank + k));
    const bool neighbours = axes.back() - axes[0] + 1 == std::ssize(axes);
    const auto at = static_cast<size_t>(neighbours ? axes[0] : 0);
    for (size_t d = 0; d < rank; ++d) {
      if (d == at) dy.append(std::span<const int64_t>(all.data(), all.size()));
      if (!is_indexed(d)) dy.push_back(n(d));
    }
    call.inputs = {testing_ops::shape_tensor(shape), tensor(dtype, dy)};
    bool full = false;  // one of them has all dims
    for (size_t i = 0; i < axes.size(); ++i) {
      Dims own = all;
      const bool last = i + 1 == axes.size() && !full;
      for (int64_t& d : own)
        if (!last && random_.one_in(4)) d = 1;
      full |= own == all;
      const int64_t extent = n(static_cast<size_t>(axes[i]));
      if (extent == 0 && element_count(all) > 0) return false;
      call.inputs.push_back(tensor(index_type(), own, extent));
    }
    call.attributes = {{"axes", axes}};
    return true;
  }

  bool broadcast(Call& call, DType dtype) {
    const size_t rank = random_.one_in(3) ? 4 + random_.below(5) : 1 + random_.below(3),
                 lead = random_.one_in(2) ? 0 : random_.below(rank + 1);
    draw_dims(call.op, rank);
    if (!fit([&] { return product(0, rank); })) return false;
    Dims dy, shape;
    for (size_t d = 0; d < rank; ++d) {
      dy.push_back(n(d));
      if (d >= lead) shape.push_back(random_.one_in(2) ? 1 : n(d));
    }
    call.inputs = {tensor(dtype, dy), testing_ops::shape_tensor(shape)};
    return true;
  }

  bool slice(Call& call, DType dtype) {
    const size_t rank = 1 + random_.below(4);
    draw_dims(call.op, rank);  // of dY
    Dims dy, shape;
    std::vector<int64_t> starts, ends, axes, steps;
    if (!fit([&] { return product(0, rank); }, 1000)) return false;
    for (size_t d = 0; d < rank; ++d) {
      dy.push_back(n(d));
      if (random_.one_in(3)) {
        shape.push_back(n(d));
        continue;
      }
      constexpr int64_t all_steps[] = {1, 1, 1, 2, 3, 9, -1, -1, -2, -5};
      const int64_t step = all_steps[random_.below(std::size(all_steps))], width = std::abs(step);
      const auto before = static_cast<int64_t>(random_.below(3) * random_.below(17)),
                 after = static_cast<int64_t>(random_.below(3) * random_.below(17));
      const int64_t extent = n(d) == 0 ? 0 : (n(d) - 1) * width + 1, lowest = before, highest = before + extent - 1;
      shape.push_back(before + extent + after);
      axes.push_back(static_cast<int64_t>(d)), steps.push_back(step);
      if (n(d) == 0)
        starts.push_back(0), ends.push_back(0), steps.back() = 1;
      else if (step > 0)
        starts.push_back(lowest), ends.push_back(highest + 1);
      else
        starts.push_back(highest), ends.push_back(lowest == 0 ? INT64_MIN : lowest - 1);
    }
    int64_t written = 1;
    for (const int64_t extent : shape)
      if (__builtin_mul_overflow(written, extent, &written)) return false;
    if (limits_.run && written > 2 * std::max<int64_t>(most_run, parallel_bytes / size_of(dtype))) return false;
    call.inputs = {tensor(dtype, dy), testing_ops::shape_tensor(shape)};
    for (const auto* values : {&starts, &ends, &axes, &steps}) call.inputs.push_back(testing_ops::ints(*values));
    return true;
  }

  bool broadcast_args(Call& call) {
    draw_dims(call.op, 2);
    if (limits_.traffic != few_bytes) return false;
    std::vector<int64_t> a, b;
    for (int64_t d = 0; d < std::max(n(0), n(1)); ++d) {
      const auto extent = static_cast<int64_t>(random_.below(4));
      if (d < n(0)) a.insert(a.begin(), random_.one_in(3) ? 1 : extent);
      if (d < n(1)) b.insert(b.begin(), random_.one_in(3) ? 1 : extent);
    }
    for (const auto* shape : {&a, &b}) {
      limits_.run = true;  // a handful of values: always run
      Tensor t = tensor(DType::i64, {static_cast<int64_t>(shape->size())}, 1);
      for (size_t i = 0; i < shape->size(); ++i)
        static_cast<int64_t*>(t.data())[static_cast<int64_t>(i) * t.strides()[0]] = (*shape)[i];
      call.inputs.push_back(t);
    }
    outputs_wanted = static_cast<uint32_t>(1 + random_.below(3));
    return broadcast_together(call.inputs[0],
                              call.inputs[1]);  // where a stride is 0, every extent aliases the last one written
  }
  static bool broadcast_together(const Tensor& a, const Tensor& b) {
    for (int64_t d = 1; d <= std::min(a.elements(), b.elements()); ++d) {
      const int64_t x = integer_element(a, a.elements() - d), y = integer_element(b, b.elements() - d);
      if (x != y && x != 1 && y != 1) return false;
    }
    return true;
  }

  bool declared(Call& call, DType dtype, const Declaration& d, bool gradient) {
    const size_t rank = 2 + random_.below(3);
    draw_dims(call.op, rank);
    if (!fit([&] { return product(0, rank); }) || (!d.indices.empty() && n(1) == 0)) return false;
    Dims all;
    for (size_t k = 0; k < rank; ++k) all.push_back(n(k));
    if (d.reduced == Reduced::axis || d.reduced == Reduced::from_axis)
      call.attributes["axis"] = static_cast<int64_t>(random_.below(2 * rank)) - static_cast<int64_t>(rank);
    if (!d.choices.empty()) call.attributes["reduction"] = d.choices[random_.below(d.choices.size())];
    if (!d.indices.empty() && random_.one_in(3)) call.attributes["ignore_index"] = int64_t{0};
    for (const testing_ops::DeclaredInput& input : testing_ops::inputs_of(d, gradient)) {
      const Dims dims = testing_ops::dims_over(d, all, call.attributes, *input.operand);
      if (input.operand->optional && !input.adjoint && random_.one_in(2))
        call.inputs.push_back({});
      else if (input.operand->name == d.indices)
        call.inputs.push_back(testing_ops::indices(input.operand->dtypes[random_.below(2)], dims, all[1]));
      else
        call.inputs.push_back(tensor(input.operand->dtypes.empty() ? dtype : input.operand->dtypes[0], dims));
    }
    if (random_.one_in(2)) outputs_wanted = static_cast<uint32_t>(1 + random_.below(7));
    return true;
  }

  bool gru(Call& call, DType dtype) {
    draw_dims(call.op, 4);
    for (const size_t d : {0, 3})
      if (!dims_[d].wanted && dims_[d].n > 17) dims_[d] = {2, two, false};
    const int64_t d = random_.one_in(3) ? 2 : 1;
    const bool grad = call.op == "GRUGrad";
    const auto steps = [&] { return d * n(0) * n(1) * (n(2) + 4 * n(3)) + d * 3 * n(3) * (n(2) + n(3)); };
    const auto work = [&] {
      return limits_.run ? std::max(steps(), d * std::max<int64_t>(n(0) * n(1), 1) * 3 * n(3) * (n(2) + n(3)) / 8)
                         : steps();
    };
    if (n(3) == 0 || !fit(work)) return false;
    const int64_t s = n(0), b = n(1), i = n(2), h = n(3);
    const auto maybe = [&](const Dims& dims) { return random_.one_in(2) ? tensor(dtype, dims) : Tensor(); };
    call.inputs = {tensor(dtype, {s, b, i}),
                   tensor(dtype, {d, 3 * h, i}),
                   tensor(dtype, {d, 3 * h, h}),
                   maybe({d, 6 * h}),
                   {},
                   {}};
    if (random_.one_in(3)) call.inputs[4] = tensor(DType::i32, {b}, s + 1);
    if (limits_.run && call.inputs[4].present()) call.inputs[4] = lengths(b, s);
    call.inputs[5] = maybe({d, b, h});
    if (grad) {
      call.inputs.push_back(tensor(dtype, {s, d, b, h}));
      call.inputs.push_back(tensor(dtype, {s, d, b, 3 * h}));
      call.inputs.push_back(maybe({s, d, b, h}));
      call.inputs.push_back(maybe({d, b, h}));
    }
    call.attributes["linear_before_reset"] = static_cast<int64_t>(random_.below(2));
    call.attributes["direction"] = std::string(d == 2 ? "bidirectional" : random_.one_in(3) ? "reverse" : "forward");
    if (random_.one_in(4)) call.attributes["clip"] = 0.75;
    outputs_wanted =
        grad ? static_cast<uint32_t>(1 + random_.below(31)) : 5 | static_cast<uint32_t>(random_.below(2) << 1);
    if (random_.one_in(2)) outputs_wanted = ~0u;
    return true;
  }
  Tensor lengths(int64_t batch, int64_t steps) {
    std::vector<int64_t> values(static_cast<size_t>(batch));
    for (int64_t& v : values) v = static_cast<int64_t>(random_.below(static_cast<uint64_t>(steps) + 1));
    return Tensor::of(DType::i32, {batch}, values);
  }
};

}  // namespace gradloom::sweep
