#pragma once
// Calls of the ops on bags, on several indices and of row-sparse gradients: a part of op_calls.h.
#include "tests/support/call.h"

namespace gradloom::testing_ops {

inline std::vector<Call> bag_calls() {
  std::vector<Call> calls;
  Random random(6);
  struct Options {
    const char* mode = "sum";
    bool weights = false, last = false, by_frequency = false, padding = false, accumulate = false;
  };
  const auto add = [&](std::string name, DType dtype, Dims shape, std::vector<int64_t> offsets, int64_t count,
                       const Options& o, DType index = DType::i64) {
    const int64_t bags = std::ssize(offsets);
    if (o.last) offsets.push_back(count);
    std::vector<Tensor> inputs{shape_tensor(shape), random.indices(index, {count}, shape[0]),
                               Tensor::of(index, {std::ssize(offsets)}, offsets),
                               random.values(dtype, {bags, shape[1]})};
    if (o.weights) inputs.push_back(random.values(dtype, {count}));
    const bool max = o.mode == std::string("max");
    if (max) inputs.push_back({}), inputs.push_back(random.indices(index, {bags, shape[1]}, shape[0]));
    Attributes attributes{{"mode", std::string(o.mode)},
                          {"include_last_offset", int64_t{o.last}},
                          {"scale_grad_by_freq", int64_t{o.by_frequency}}};
    if (o.padding) attributes["padding_idx"] = int64_t{-2};
    calls.push_back({name + "_" + to_string(dtype), "EmbeddingBagGrad", inputs, attributes, o.accumulate});
  };
  for (const DType t : floats) {
    add("sum", t, {19, 37}, {0, 3, 3, 11}, 20, {});
    add("mean", t, {19, 40}, {0, 5, 5}, 23, {.mode = "mean", .last = true, .padding = true}, DType::i32);
    add("max", t, {19, 12}, {0, 5, 5}, 9, {.mode = "max", .padding = true});
  }
  add("weights", DType::f32, {7, 72}, {0, 0, 9}, 31, {.weights = true, .padding = true});
  add("weights", DType::bf16, {7, 72}, {0, 0, 9}, 31, {.weights = true, .accumulate = true});
  add("by_frequency", DType::f32, {6, 16}, {0, 7}, 40, {.mode = "mean", .by_frequency = true, .padding = true});
  add("by_frequency", DType::f16, {6, 16}, {0, 7}, 40, {.by_frequency = true, .accumulate = true});
  add("accumulated", DType::f32, {19, 33}, {0, 4}, 9, {.mode = "mean", .accumulate = true});
  add("large", DType::f32, {900, 128}, {0, 10, 20, 200}, 500, {.mode = "mean"});
  return calls;
}

inline std::vector<Call> index_calls() {
  std::vector<Call> calls;
  Random random(7);
  const auto add = [&](std::string name, DType dtype, Dims shape, std::vector<int64_t> axes, std::vector<Dims> indices,
                       Dims dy, bool accumulate = false, DType index = DType::i64) {
    std::vector<Tensor> inputs{shape_tensor(shape), random.values(dtype, dy)};
    for (size_t i = 0; i < axes.size(); ++i)
      inputs.push_back(random.indices(index, indices[i], shape[static_cast<int>(axes[i])]));
    calls.push_back({name + "_" + to_string(dtype), "IndexGrad", inputs, {{"axes", axes}}, accumulate});
  };
  for (const DType t : floats) {
    add("rows", t, {5, 7, 40}, {0, 1}, {{23}, {23}}, {23, 40});
    add("elements", t, {9, 11}, {0, 1}, {{4, 1}, {13}}, {4, 13}, false, DType::i32);
    add("accumulated", t, {9, 11, 24}, {0, 1}, {{6}, {6}}, {6, 24}, true);
  }
  add("apart", DType::f32, {5, 12, 7}, {0, 2}, {{3, 1}, {1, 4}}, {3, 4, 12});
  add("apart_rows", DType::f32, {3, 5, 4, 40}, {0, 2}, {{11}, {11}}, {11, 5, 40});
  add("apart_accumulated", DType::f16, {5, 12, 7}, {0, 2}, {{6}, {6}}, {6, 12}, true);
  add("inner", DType::f32, {6, 5, 7, 33}, {1, 2}, {{17}, {1}}, {6, 17, 33});
  add("inner_accumulated", DType::f32, {6, 5, 7, 33}, {1, 2}, {{17}, {1}}, {6, 17, 33}, true);
  add("three", DType::f64, {4, 5, 6}, {0, 1, 2}, {{31}, {31}, {31}}, {31});
  add("three_accumulated", DType::f32, {14, 15, 16}, {0, 1, 2}, {{31}, {31}, {31}}, {31}, true);
  add("scalars", DType::f32, {4, 5, 6}, {0, 1}, {{}, {}}, {6});
  add("large", DType::f32, {30, 30, 128}, {0, 1}, {{500}, {500}}, {500, 128});
  return calls;
}

inline std::vector<Call> sparse_gather_calls() {
  std::vector<Call> calls;
  Random random(8);
  const auto add = [&](std::string name, DType dtype, Dims shape, Dims index, Attributes attributes = {},
                       DType index_type = DType::i64) {
    Dims dy = index;
    for (int d = 1; d < shape.size(); ++d) dy.push_back(shape[d]);
    calls.push_back({name + "_" + to_string(dtype),
                     "SparseGatherGrad",
                     {shape_tensor(shape), random.indices(index_type, index, shape[0]), random.values(dtype, dy)},
                     attributes});
  };
  for (const DType t : floats) add("embedding", t, {700, 40}, {4, 9}, {{"padding_idx", int64_t{-7}}}, DType::i32);
  add("vector", DType::f32, {70001}, {301});
  add("one_row", DType::f32, {1, 5}, {6});
  add("slices", DType::f32, {30, 3, 70}, {});
  return calls;
}

}  // namespace gradloom::testing_ops
