// SliceGrad in the interpreter, against plain loops: dtypes, axes, strides, any-shape and specialised, authored and
// scheduled, accumulate.
#include "gradloom/text.h"
#include "tests/ops/ops_expect.h"
#include "tests/support/named_strategy.h"
#include "tests/support/sampled.h"

namespace gradloom {
namespace {

using namespace testing_ops;

struct SliceCase {
  Dims shape;
  std::vector<int64_t> starts, ends, axes, steps;
};

// The indices that a slice selects, in order.
std::vector<int64_t> taken(int64_t d, int64_t start, int64_t end, int64_t step) {
  std::vector<int64_t> indices;
  if (d == 0) return indices;
  if (start < 0) start += d;
  start = std::clamp<int64_t>(start, 0, step > 0 ? d : d - 1);
  if (end == INT64_MAX || end == INT32_MAX)
    end = step > 0 ? d : -1;
  else if (end < 0)
    end += d;
  for (int64_t i = start; step > 0 ? i < std::min(end, d) : i > std::max<int64_t>(end, -1); i += step) {
    indices.push_back(i);
    if (step > d || step < -d) break;
  }
  return indices;
}

const std::vector<SliceCase> slice_cases{
    {{}, {}, {}, {}, {}},
    {{7}, {2}, {5}, {0}, {1}},
    {{7}, {-1}, {INT64_MIN}, {0}, {-2}},
    {{40}, {3}, {INT64_MAX}, {0}, {3}},
    {{40}, {3}, {INT32_MAX}, {0}, {12}},
    {{1}, {0}, {1}, {0}, {1}},
    {{5}, {3}, {3}, {0}, {1}},
    {{0, 3}, {0}, {0}, {1}, {1}},
    {{4, 6}, {0, 5}, {4, -7}, {0, 1}, {2, -2}},
    {{4, 6}, {1}, {3}, {0}, {1}},
    {{4, 6}, {1}, {3}, {-1}, {1}},
    {{4, 128}, {1}, {3}, {0}, {1}},
    {{3, 5, 7}, {1, 4}, {3, INT64_MIN}, {0, 2}, {1, -1}},
    {{3, 5, 7}, {0, 0}, {9, 5}, {1, 2}, {2, 2}},
    {{3, 5, 1, 7}, {4}, {INT64_MIN}, {1}, {-3}},
    {{2, 9, 4}, {1}, {8}, {1}, {3}},
    {{2, 9, 4}, {1}, {2}, {1}, {INT64_MAX}},
    {{2, 9, 4}, {8}, {INT64_MIN}, {1}, {INT64_MIN}},
    // Streamed: rows of whole lines, written together with their gaps.
    {{19, 64}, {0, 0}, {19, 64}, {0, 1}, {2, 2}},
    {{19, 64}, {1, 1}, {19, 64}, {0, 1}, {3, 2}},
    {{20, 64}, {19, 63}, {INT64_MIN, INT64_MIN}, {0, 1}, {-2, -2}},
    {{20, 64}, {18, 3}, {INT64_MIN, 61}, {0, 1}, {-3, 1}},
    {{2, 20, 64}, {1, 60}, {20, 7}, {1, 2}, {2, -1}},
    {{12, 96}, {1, 5}, {2, 90}, {0, 1}, {4, 2}},
    {{30, 64}, {3, 7}, {29, 60}, {0, 1}, {12, 5}},
    // ... whose outer dim is written as two interleaved streams.
    {{4, 8, 40}, {1}, {7}, {1}, {1}},
    {{6, 8, 40}, {-1}, {INT64_MIN}, {1}, {-1}},
    {{5, 8, 40}, {1}, {7}, {1}, {1}},
    {{2, 12, 50}, {1}, {11}, {1}, {3}},
    {{4, 3, 11, 20}, {10, 2}, {INT64_MIN, 1}, {2, 1}, {-2, -1}},
    {{3, 3, 3, 3}, {2, 2, 2, 2}, {INT64_MIN, INT64_MIN, INT64_MIN, INT64_MIN}, {0, 1, 2, 3}, {-2, -1, -1, -2}},
};

void slice_call(const SliceCase& c, DType dtype, bool strided, DType index) {
  std::vector<std::vector<int64_t>> indices;
  for (const int64_t d : c.shape) {
    indices.emplace_back(d);
    std::iota(indices.back().begin(), indices.back().end(), 0);
  }
  for (size_t i = 0; i < c.starts.size(); ++i) {
    const int64_t axis = c.axes[i] < 0 ? c.axes[i] + c.shape.size() : c.axes[i];
    indices[axis] = taken(c.shape[axis], c.starts[i], c.ends[i], c.steps[i]);
  }
  Dims dy_dims;
  for (const auto& list : indices) dy_dims.push_back(list.size());
  const Tensor dense = filled(dtype, dy_dims, 7);
  const Strided other = strided_copy(dense);
  const DType sum = accumulator_of(dtype);
  std::vector<uint64_t> want(element_count(c.shape), 0);
  for (int64_t i = 0; i < dense.elements(); ++i) {
    Dims at = unravel(dy_dims, i);
    for (int d = 0; d < at.size(); ++d) at[d] = indices[d][at[d]];
    want[ravel(c.shape, at)] = ir::eval_cast(dtype, sum, bits_at(dense, i));
  }
  const Tensor shape = ints(std::vector<int64_t>(c.shape.begin(), c.shape.end()));
  const std::vector<Tensor> inputs{strided ? other.tensor : dense,
                                   shape,
                                   ints(c.starts, index),
                                   ints(c.ends, index),
                                   ints(c.axes, index),
                                   ints(c.steps, index)};
  // Adding 0 to elements outside the slice would change -0 to 0: accumulate is checked below.
  expect_everywhere(op("SliceGrad"), inputs, {}, dtype, c.shape, want, false);
  if (dtype == DType::boolean) return;
  std::vector<How> ways = hows(true);
  for (How how : hows(true)) how.strategy = "flat", ways.push_back(how);
  for (const How& how : ways) {
    const Tensor before = filled(dtype, c.shape, 99), target = filled(dtype, c.shape, 99);
    std::vector<uint64_t> added;
    for (int64_t i = 0; i < before.elements(); ++i) added.push_back(bits_at(before, i));
    for (int64_t i = 0; i < dense.elements(); ++i) {
      Dims at = unravel(dy_dims, i);
      for (int d = 0; d < at.size(); ++d) at[d] = indices[d][at[d]];
      uint64_t& place = added[ravel(c.shape, at)];
      place = add_bits(dtype, place, bits_at(dense, i));
    }
    expect_bits(run(op("SliceGrad"), inputs, {}, how, {target})[0], added, "SliceGrad, " + describe(how));
  }
}

// Without its first line, which names the strategy.
std::string body(const ir::Kernel& kernel) {
  const std::string text = ir::print(kernel);
  return text.substr(text.find('\n'));
}

TEST(SliceGrad, DirectIsARecipeOfTheDefinition) {
  const std::vector<ir::Target> targets{
      {.vector_bytes = 64, .l2_bytes = 1 << 9, .threads = 1}, {.vector_bytes = 32, .threads = 4}, {.gpu = true}};
  for (const SliceCase& c : sample(slice_cases)) {
    Dims dy = c.shape;
    for (size_t i = 0; i < c.starts.size(); ++i) {
      const int64_t axis = c.axes[i] < 0 ? c.axes[i] + c.shape.size() : c.axes[i];
      dy[axis] = static_cast<int64_t>(taken(c.shape[axis], c.starts[i], c.ends[i], c.steps[i]).size());
    }
    const Tensor shape = ints(std::vector<int64_t>(c.shape.begin(), c.shape.end()));
    const std::vector<Tensor> inputs{Tensor::empty(DType::f32, dy), shape, ints(c.starts), ints(c.ends), ints(c.axes),
                                     ints(c.steps)};
    const Op& called = op("SliceGrad");
    const Operands operands(called.schema(), inputs);
    for (const bool accumulate : {false, true}) {
      const Plan plan = called.check(operands.request({}, ~0u, accumulate, Determinism::sequential));
      for (const ir::Target& target : targets)
        for (const bool any_shape : {false, true}) {
          SCOPED_TRACE(to_string(c.shape) + (any_shape ? " any" : "") + (accumulate ? " accumulate" : ""));
          const RunOptions options{.accumulate = accumulate, .any_shape = any_shape};
          const auto planned = [&](const std::string& strategy) {
            return PlannedCall{called, plan, find_strategy(called, strategy), options, ~0u, aligned_outputs};
          };
          const BuiltKernel built = build_kernel(planned("direct"), target);
          EXPECT_EQ(body(built.authored), body(author_kernel(planned("flat"), target).authored));
          EXPECT_EQ(body(replay_kernel(planned("direct"), target, built.trace).scheduled), body(built.scheduled));
        }
    }
  }
}

TEST(SliceGrad, EveryCaseDenseAndStrided) {
  for (size_t i = 0; i < slice_cases.size(); ++i)
    for (const bool strided : {false, true}) {
      if (!sampled(2 * i + strided)) continue;
      SCOPED_TRACE("case " + std::to_string(i) + (strided ? ", strided" : ""));
      slice_call(slice_cases[i], DType::f32, strided, DType::i64);
      if (HasFatalFailure()) return;
    }
}

TEST(SliceGrad, EveryDtype) {
  for (int t = 0; t < dtype_count; ++t) {
    if (!sampled(t, 3)) continue;
    SCOPED_TRACE(onnx_name(static_cast<DType>(t)));
    slice_call({{3, 5, 7}, {0, 6}, {9, -9}, {1, 2}, {2, -3}}, static_cast<DType>(t), false, DType::i32);
    if (HasFatalFailure()) return;
  }
}

TEST(SliceGrad, CopiesNanPayloads) {
  Tensor dy = Tensor::empty(DType::f32, {2});
  set_bits(dy, 0, 0x7fa00001);
  set_bits(dy, 1, 0xffc12345);
  for (const How& how : hows()) {
    const Tensor dx = run(op("SliceGrad"), {dy, ints({3}), ints({1}), ints({3})}, {}, how)[0];
    expect_bits(dx, {0, 0x7fa00001, 0xffc12345}, describe(how));
  }
}

TEST(SliceGrad, MergesWhatStaysInLine) {
  const auto plan = [](const Tensor& dy, std::vector<int64_t> shape, std::vector<int64_t> starts,
                       std::vector<int64_t> ends) {
    const std::vector<Tensor> inputs{dy, ints(shape), ints(starts), ints(ends)};
    const Operands operands(op("SliceGrad").schema(), inputs);
    const Attributes none;
    return op("SliceGrad").check(operands.request(none));
  };
  const Plan whole = plan(filled(DType::f32, {4, 1, 6, 5}, 1), {4, 1, 6, 5}, {0}, {4});
  EXPECT_EQ(to_string(whole.views[1].dims), "[120]");
  const Plan window = plan(filled(DType::f32, {2, 6, 5}, 1), {4, 6, 5}, {1}, {3});
  EXPECT_EQ(to_string(window.views[1].dims), "[120]");
  EXPECT_EQ(window.params[0], 30);
  // Rows of whole cache lines are not collapsed with a window, so that their stores stay aligned.
  EXPECT_EQ(to_string(plan(filled(DType::f32, {2, 128}, 1), {4, 128}, {1}, {3}).views[1].dims), "[4,128]");
  // Another start changes params only.
  EXPECT_EQ(plan(filled(DType::f32, {2, 6, 5}, 1), {4, 6, 5}, {2}, {4}).key, window.key);
}

}  // namespace
}  // namespace gradloom
