#pragma once
// Calls of every op, over dtypes, shapes with odd residues, strides and attributes, and their buffers: shared by the
// tests that compare executors and schedules.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "gradloom/runtime.h"
#include "ir/interpret/interpret.h"
#include "ir/scalar_math.h"
#include "support/hash.h"
#include "tests/support/named_strategy.h"
#include "tests/support/sparse_calls.h"

namespace gradloom::testing_ops {

inline std::vector<Call> slice_calls() {
  std::vector<Call> calls;
  Random random(1);
  const auto add = [&](std::string name, DType dtype, Dims shape, Dims dy, std::vector<int64_t> starts,
                       std::vector<int64_t> ends, std::vector<int64_t> axes, std::vector<int64_t> steps,
                       bool accumulate = false) {
    calls.push_back({name + "_" + to_string(dtype),
                     "SliceGrad",
                     {random.values(dtype, dy), shape_tensor(shape), ints(starts), ints(ends), ints(axes), ints(steps)},
                     {},
                     accumulate});
  };
  for (int d = 0; d < dtype_count; ++d) {
    const DType dtype = static_cast<DType>(d);
    if (dtype == DType::boolean) {
      calls.push_back(
          {"bools",
           "SliceGrad",
           {Tensor::of(dtype, {3}, std::vector<int>{1, 0, 1}), ints({7}), ints({1}), ints({7}), ints({0}), ints({2})},
           {}});
      continue;
    }
    add("inner", dtype, {5, 67}, {5, 33}, {3}, {36}, {1}, {1});
    add("step2", dtype, {9, 71}, {5, 36}, {0, 0}, {9, 71}, {0, 1}, {2, 2});
  }
  for (int64_t n : {1, 2, 15, 16, 17, 31, 33, 64, 100})
    add("row" + std::to_string(n), DType::f32, {3, n + 9}, {3, n}, {4}, {4 + n}, {1}, {1});
  add("reverse", DType::f32, {4, 50}, {4, 50}, {-1}, {INT64_MIN}, {1}, {-1});
  add("reverse_step3", DType::f32, {4, 50}, {4, 17}, {-1}, {INT64_MIN}, {1}, {-3});
  add("step9", DType::f32, {50, 3}, {6, 3}, {2}, {50}, {0}, {9});
  add("middle", DType::f32, {3, 10, 256}, {3, 8, 256}, {1}, {-1}, {1}, {1});
  add("negative_rows", DType::bf16, {3, 10, 128}, {3, 10, 128}, {-1}, {INT64_MIN}, {1}, {-1});
  add("corner", DType::f64, {7, 9, 11}, {2, 3, 4}, {1, 2, 3}, {6, 9, 11}, {0, 1, 2}, {3, 3, 2});
  add("accumulated", DType::f16, {9, 71}, {5, 36}, {0, 0}, {9, 71}, {0, 1}, {2, 2}, true);
  add("nothing", DType::f32, {3, 4}, {3, 0}, {2}, {2}, {1}, {1});
  add("large", DType::f32, {33, 64, 160}, {33, 62, 160}, {1}, {-1}, {1}, {1});
  return calls;
}

inline std::vector<Call> gather_elements_calls() {
  std::vector<Call> calls;
  Random random(2);
  const auto add = [&](std::string name, DType dtype, Dims shape, Dims index, int64_t axis,
                       DType index_type = DType::i64, bool accumulate = false) {
    calls.push_back({name + "_" + to_string(dtype),
                     "GatherElementsGrad",
                     {random.values(dtype, index), shape_tensor(shape),
                      random.indices(index_type, index, shape[static_cast<int>(axis)])},
                     {{"axis", axis}},
                     accumulate});
  };
  for (DType dtype : floats) {
    add("rows", dtype, {6, 37}, {6, 53}, 1);
    add("columns", dtype, {19, 45}, {23, 45}, 0, DType::i32);
    add("flat", dtype, {70001}, {3001}, 0);
    add("middle", dtype, {3, 17, 70}, {3, 29, 70}, 1);
    add("pipelined", dtype, {3, 17, 64}, {3, 29, 64}, 1);
  }
  add("pipelined_lines", DType::f32, {5, 13, 48}, {5, 4, 48}, 1, DType::i32);
  add("pipelined_short", DType::f32, {4, 9, 96}, {3, 30, 32}, 1);
  add("pipelined_accumulated", DType::f16, {3, 41, 64}, {3, 10, 64}, 1, DType::i64, true);
  add("pipelined_shared", DType::f32, {7, 150, 96}, {7, 40, 96}, 1);
  add("pipelined_shared_columns", DType::f32, {130, 608}, {37, 608}, 0, DType::i32);
  for (int64_t n : {1, 7, 8, 9, 31, 32, 33, 65}) add("strip" + std::to_string(n), DType::f32, {5, n}, {11, n}, 0);
  add("long_rows", DType::f32, {7, 20}, {7, 1100}, 1);
  add("long_columns", DType::f32, {20, 7}, {1024, 7}, 0);
  add("wide_rows", DType::f32, {9, 5000}, {9, 288}, 1);
  add("short_rows", DType::f32, {6, 37}, {4, 20}, 1);
  add("short_columns", DType::f32, {19, 45}, {23, 40}, 0);
  add("accumulated", DType::bf16, {19, 45}, {23, 45}, 0, DType::i64, true);
  add("touched_corner", DType::bf16, {170, 300}, {5, 270}, 0, DType::i64, true);
  add("touched_flat", DType::f16, {3000}, {23}, 0, DType::i64, true);
  add("one_destination", DType::f32, {1, 40}, {50, 40}, 0);
  add("long_groups", DType::f32, {3}, {900}, 0);
  add("large_rows", DType::f32, {300, 300}, {300, 300}, 1);
  add("large_columns", DType::f32, {300, 300}, {300, 300}, 0);
  return calls;
}

inline std::vector<Call> gather_calls() {
  std::vector<Call> calls;
  Random random(3);
  const auto add = [&](std::string name, DType dtype, Dims shape, Dims index, int64_t axis,
                       DType index_type = DType::i64, bool accumulate = false) {
    Dims dy;
    for (int d = 0; d < axis; ++d) dy.push_back(shape[d]);
    dy.append(std::span<const int64_t>(index.data(), index.size()));
    for (int d = static_cast<int>(axis) + 1; d < shape.size(); ++d) dy.push_back(shape[d]);
    calls.push_back({name + "_" + to_string(dtype),
                     "GatherGrad",
                     {shape_tensor(shape), random.indices(index_type, index, shape[static_cast<int>(axis)]),
                      random.values(dtype, dy)},
                     {{"axis", axis}},
                     accumulate});
  };
  for (DType dtype : floats) {
    add("embedding", dtype, {50, 72}, {4, 9}, 0);
    add("middle", dtype, {3, 20, 40}, {31}, 1, DType::i32);
    add("last", dtype, {5, 40}, {61}, 1);
    add("flat", dtype, {70001}, {3001}, 0);
  }
  for (int64_t n : {1, 7, 8, 9, 63, 64, 65, 130}) add("row" + std::to_string(n), DType::f32, {9, n}, {20}, 0);
  add("scalar_index", DType::f32, {4, 6}, {}, 0);
  add("accumulated", DType::f16, {50, 72}, {4, 9}, 0, DType::i64, true);
  add("touched_rows", DType::bf16, {90, 72}, {3, 3}, 0, DType::i32, true);
  add("duplicates", DType::f32, {2, 100}, {77}, 0);
  for (const DType dtype : {DType::bf16, DType::f64}) add("long_groups", dtype, {2, 20}, {500}, 0);
  add("large", DType::f32, {900, 128}, {500}, 0);
  return calls;
}

inline std::vector<Call> broadcast_calls() {
  std::vector<Call> calls;
  Random random(4);
  const auto add = [&](std::string name, DType dtype, Dims dy, Dims shape, bool accumulate = false) {
    calls.push_back({name + "_" + to_string(dtype),
                     "BroadcastGrad",
                     {random.values(dtype, dy), shape_tensor(shape)},
                     {},
                     accumulate});
  };
  for (DType dtype : floats) {
    add("rows", dtype, {37, 45}, {45});
    add("columns", dtype, {19, 300}, {19, 1});
    add("all", dtype, {5, 7, 67}, {});
    add("mixed", dtype, {5, 6, 7, 8}, {5, 1, 7, 1});
    add("outer_inner", dtype, {20, 6, 33}, {1, 6, 1});
    if (dtype == DType::f32)
      add("many_groups", dtype, Dims(std::vector<int64_t>(12, 2)), {1, 2, 1, 2, 1, 2, 1, 2, 1, 2, 1, 2});
  }
  for (int64_t n : {1, 15, 16, 17, 255, 256, 257, 600}) {
    add("contiguous" + std::to_string(n), DType::f32, {3, n}, {3, 1});
    add("strided" + std::to_string(n), DType::f32, {n, 19}, {19});
  }
  add("nothing_reduced", DType::f32, {6, 9}, {6, 9});
  add("nothing_reduced_large", DType::f16, {401, 333}, {401, 333});
  add("nothing_reduced_accumulated", DType::f32, {401, 333}, {401, 333}, true);
  add("accumulated", DType::bf16, {37, 45}, {45}, true);
  add("large_rows", DType::f32, {700, 130}, {130});
  add("large_columns", DType::f32, {700, 130}, {700, 1});
  add("no_columns", DType::f32, {3, 0}, {0});
  add("nothing_of_no_columns", DType::f32, {0, 5, 0}, {5, 0});
  add("parts_of_rows", DType::f32, {2060, 5}, {5});
  add("parts_of_a_row", DType::f32, {2, 17000}, {2, 1});
  calls.push_back({"args", "BroadcastGradientArgs", {ints({2, 1, 5}), ints({3, 1, 4, 5})}, {}});
  return calls;
}

// Runs the forward pass first: GRUGrad's saved values are those of a real call.
inline std::vector<Call> gru_calls() {
  std::vector<Call> calls;
  Runtime forward({.target = TargetKind::interpreter});
  struct Options {
    DType dtype = DType::f32;
    bool linear = false, lens = false, bias = true, bare = false;
    const char* direction = "forward";
    double clip = 0;
    std::vector<std::string> activations = {};
  };
  const auto add = [&](std::string name, int64_t s, int64_t n, int64_t i, int64_t h, const Options& o) {
    const int64_t d = std::string(o.direction) == "bidirectional" ? 2 : 1;
    const DType t = o.dtype;
    name += std::string("_") + to_string(t);
    Random random(hash128(name).low);  // of its own: no other call's values change with the list
    std::vector<Tensor> in{
        random.values(t, {s, n, i}), random.values(t, {d, 3 * h, i}), random.values(t, {d, 3 * h, h}), {}, {}, {}};
    if (o.bias) in[3] = random.values(t, {d, 6 * h});
    if (o.lens) {
      std::vector<int64_t> lens(n);
      for (int64_t k = 0; k < n; ++k) lens[k] = (k * 5 + 2) % (s + 1);
      in[4] = Tensor::of(DType::i32, {n}, lens);
    }
    if (!o.bare) in[5] = random.values(t, {d, n, h});
    Attributes attributes{{"linear_before_reset", int64_t{o.linear}}, {"direction", std::string(o.direction)}};
    if (o.clip > 0) attributes["clip"] = o.clip;
    if (!o.activations.empty()) attributes["activations"] = o.activations;
    calls.push_back({name, "GRUTraining", in, attributes});
    const auto out = forward.run("GRUTraining", in, attributes);
    if (!out) throw std::runtime_error(out.error().what());
    in.insert(in.end(), {out.value()[0], out.value()[2], random.values(t, {s, d, n, h}), {}});
    if (!o.bare) in.back() = random.values(t, {d, n, h});
    calls.push_back({name, "GRUGrad", in, attributes});
    if (o.lens || t == DType::f16) calls.push_back({name + "_accumulated", "GRUGrad", in, attributes, true});
  };
  // The dtypes are shared out: a GRU's strategies take longest of all to compile and interpret.
  for (const DType t : {DType::f32, DType::f16}) add("plain", 3, 5, 9, 13, {.dtype = t, .bare = true});
  for (const DType t : {DType::f64, DType::bf16}) add("linear", 3, 5, 9, 13, {.dtype = t, .linear = true});
  add("one_row", 4, 1, 33, 40, {.linear = true});
  add("lens", 4, 7, 5, 17, {.lens = true, .direction = "bidirectional"});
  add("lens_linear", 4, 7, 5, 17, {.linear = true, .lens = true, .bias = false, .direction = "reverse"});
  add("clip", 3, 4, 6, 16,
      {.direction = "bidirectional", .clip = 0.8, .activations = {"HardSigmoid", "Softplus", "Softsign", "Elu"}});
  add("clip_linear", 3, 4, 6, 16, {.linear = true, .clip = 0.8, .activations = {"Affine", "LeakyRelu"}});
  add("lens", 4, 7, 5, 17, {.dtype = DType::bf16, .lens = true, .direction = "bidirectional"});
  add("clip", 3, 4, 6, 16,
      {.dtype = DType::f16,
       .direction = "bidirectional",
       .clip = 0.8,
       .activations = {"HardSigmoid", "Softplus", "Softsign", "Elu"}});
  add("wide", 2, 18, 40, 72, {.linear = true});
  add("wide_lens", 2, 6, 8, 72, {.dtype = DType::bf16, .lens = true});
  return calls;
}

// One call's buffers: inputs as they are, outputs poisoned (or initialised, when accumulated into).
struct Buffers {
  Buffers(const Call& call, const Plan& plan, bool unaligned) {
    for (const View& view : plan.views) {
      if (!view.output) {
        Tensor input = call.inputs[view.index];
        tensors.push_back(Tensor::borrow(input.data(), view.dtype, view.dims, view.strides));
        continue;
      }
      const int64_t bytes = element_count(view.dims) * size_of(view.dtype);
      memory.push_back(Tensor::empty(DType::u8, {bytes + 64}));
      char* data = static_cast<char*>(memory.back().data()) + (unaligned ? size_of(view.dtype) : 0);
      if (call.accumulate) {
        Tensor old = Random(99).values(call.whole_numbers ? DType::i8 : view.dtype, view.dims);
        if (call.whole_numbers) {
          const int8_t* numbers = static_cast<const int8_t*>(old.data());
          old = Tensor::of(view.dtype, view.dims, std::vector<int8_t>(numbers, numbers + element_count(view.dims)));
        }
        if (bytes > 0) std::memcpy(data, old.data(), bytes);
      } else {
        std::memset(data, view.dtype == DType::boolean ? 1 : 0xee, bytes);
      }
      outputs.push_back({data, view.dtype, element_count(view.dims)});
      tensors.push_back(Tensor::borrow(data, view.dtype, view.dims));
    }
  }
  struct Output {
    char* data;
    DType dtype;
    int64_t elements;
  };
  std::vector<Tensor> tensors, memory;
  std::vector<Output> outputs;

  std::vector<void*> pointers() const {
    std::vector<void*> all;
    for (const Tensor& t : tensors) all.push_back(t.data());
    return all;
  }
  // The raw bits, NaNs canonicalised.
  std::vector<uint64_t> bits() const {
    std::vector<uint64_t> all;
    for (const Output& o : outputs)
      for (int64_t i = 0; i < o.elements; ++i) {
        uint64_t value = 0;
        std::memcpy(&value, o.data + i * size_of(o.dtype), size_of(o.dtype));
        const bool nan = is_float(o.dtype) && std::isnan(ir::double_from_bits(o.dtype, value));
        all.push_back(nan ? ~uint64_t{0} : value);
      }
    return all;
  }
};

using Bits = std::vector<uint64_t>;

// The first difference, in one line; "" when equal.
inline std::string difference(const Bits& got, const Bits& want) {
  if (got.size() != want.size())
    return std::to_string(got.size()) + " elements, expected " + std::to_string(want.size());
  std::string text;
  int64_t differ = 0;
  for (size_t i = 0; i < got.size(); ++i)
    if (got[i] != want[i] && ++differ <= 8) text += fmt::format(" [{}] {:#x} for {:#x}", i, got[i], want[i]);
  return differ == 0 ? "" : std::to_string(differ) + " of " + std::to_string(got.size()) + " elements:" + text;
}

inline Bits interpreted(const ir::Kernel& kernel, const Call& call, const Plan& plan,
                        const std::vector<int64_t>& scalars, bool reverse) {
  Buffers buffers(call, plan, false);
  EXPECT_TRUE(
      ir::interpret(kernel, buffers.pointers(), scalars, {.explicit_barriers = true, .reverse_parallel = reverse})
          .ok());
  return buffers.bits();
}

// The reference result of the call: its definition, interpreted.
inline Bits defined(const Op& op, const Call& call, const Plan& plan) {
  const BuiltKernel direct = author_kernel(op, plan, "direct", {}, false, 1, call.accumulate);
  std::vector<int64_t> scalars(direct.sources.size());
  fill_scalars(plan, direct.sources, scalars.data());
  return interpreted(direct.authored, call, plan, scalars, false);
}

}  // namespace gradloom::testing_ops
