// The ops as the interpreter runs them, against plain loops: dtypes, axes, strides, any-shape and specialised, authored and scheduled, accumulate.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "ops/op.h"
#include "tests/ops_harness.h"

namespace gradloom {
namespace {

using namespace testing_ops;

const Op& op(const char* name) { return *find_op(name); }

Tensor ints(const std::vector<int64_t>& values, DType dtype = DType::i64) { return Tensor::of(dtype, {static_cast<int64_t>(values.size())}, values); }

std::vector<How> hows(bool accumulate = false) {
  std::vector<How> all;
  for (const bool any_shape : {false, true})
    for (const bool scheduled : {false, true})
      for (const int bytes : {16, 64}) {
        if (!scheduled && bytes != 16) continue;
        How how{.any_shape = any_shape, .scheduled = scheduled, .accumulate = accumulate};
        how.target.vector_bytes = bytes;
        how.target.hardware_scatter = bytes == 64;
        all.push_back(how);
      }
  return all;
}

std::string describe(const How& how) {
  return std::string(how.any_shape ? "any shape" : "specialised") + (how.scheduled ? ", scheduled " + std::to_string(how.target.vector_bytes) : ", authored") +
         (how.accumulate ? ", accumulate" : "");
}

void expect_bits(const Tensor& got, const std::vector<uint64_t>& want, const std::string& what) {
  ASSERT_EQ(got.elements(), static_cast<int64_t>(want.size())) << what;
  for (int64_t i = 0; i < got.elements(); ++i) ASSERT_EQ(bits_at(got, i), want[i]) << what << ", element " << i << " of " << to_string(got.dims());
}

// old + value in the accumulator's dtype, rounded once.
uint64_t add_bits(DType t, uint64_t a, uint64_t b) {
  const DType sum = accumulator_of(t);
  return ir::eval_cast(sum, t, ir::eval_binary(ir::BinaryOp::add, sum, ir::eval_cast(t, sum, a), ir::eval_cast(t, sum, b)));
}

// Runs under every mode, fresh and accumulating. `want` are sums in the accumulator's dtype (copies: in the dtype itself).
void expect_everywhere(const Op& o, const std::vector<Tensor>& inputs, const Attributes& attributes, DType dtype, const Dims& shape, const std::vector<uint64_t>& want,
                       bool accumulate = true) {
  const DType sum = accumulator_of(dtype);
  std::vector<uint64_t> rounded;
  for (const uint64_t w : want) rounded.push_back(ir::eval_cast(sum, dtype, w));
  for (const How& how : hows()) {
    std::vector<Tensor> got;
    ASSERT_NO_THROW(got = run(o, inputs, attributes, how)) << o.schema().name << ", " << describe(how);
    expect_bits(got[0], rounded, o.schema().name + ", " + describe(how) + ", " + onnx_name(dtype));
  }
  if (!accumulate) return;
  for (const How& how : hows(true)) {
    const Tensor before = filled(dtype, shape, 99), target = filled(dtype, shape, 99);
    std::vector<uint64_t> added;
    for (size_t i = 0; i < want.size(); ++i) {
      const uint64_t old = ir::eval_cast(dtype, sum, bits_at(before, i));
      added.push_back(ir::eval_cast(sum, dtype, ir::eval_binary(ir::BinaryOp::add, sum, old, want[i])));
    }
    std::vector<Tensor> got;
    ASSERT_NO_THROW(got = run(o, inputs, attributes, how, {target})) << o.schema().name << ", " << describe(how);
    expect_bits(got[0], added, o.schema().name + ", " + describe(how) + ", " + onnx_name(dtype));
  }
}

// The multi-index of element i.
Dims unravel(const Dims& dims, int64_t i) {
  Dims at;
  at.resize(dims.size());
  for (int d = dims.size(); d-- > 0;) {
    at[d] = i % dims[d];
    i /= dims[d];
  }
  return at;
}
int64_t ravel(const Dims& dims, const Dims& at) {
  int64_t i = 0;
  for (int d = 0; d < dims.size(); ++d) i = i * dims[d] + at[d];
  return i;
}

// ---- SliceGrad -------------------------------------------------------------------------------------------------------------------------------------------

struct SliceCase {
  Dims shape;
  std::vector<int64_t> starts, ends, axes, steps;
};

// The indices that a slice takes, one after the other.
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
  const std::vector<Tensor> inputs{strided ? other.tensor : dense, shape, ints(c.starts, index), ints(c.ends, index), ints(c.axes, index), ints(c.steps, index)};
  // Adding 0 where nothing is added would turn -0 into 0: accumulate is checked below.
  expect_everywhere(op("SliceGrad"), inputs, {}, dtype, c.shape, want, false);
  if (dtype == DType::boolean) return;
  for (const How& how : hows(true)) {
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

TEST(SliceGrad, EveryCaseDenseAndStrided) {
  for (size_t i = 0; i < slice_cases.size(); ++i)
    for (const bool strided : {false, true}) {
      SCOPED_TRACE("case " + std::to_string(i) + (strided ? ", strided" : ""));
      slice_call(slice_cases[i], DType::f32, strided, DType::i64);
      if (HasFatalFailure()) return;
    }
}

TEST(SliceGrad, EveryDtype) {
  for (int t = 0; t < dtype_count; ++t) {
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
  const auto plan = [](const Tensor& dy, std::vector<int64_t> shape, std::vector<int64_t> starts, std::vector<int64_t> ends) {
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
  // Rows of whole cache lines stay apart from a window, so that their stores stay aligned.
  EXPECT_EQ(to_string(plan(filled(DType::f32, {2, 128}, 1), {4, 128}, {1}, {3}).views[1].dims), "[4,128]");
  // A moving start changes params only.
  EXPECT_EQ(plan(filled(DType::f32, {2, 6, 5}, 1), {4, 6, 5}, {2}, {4}).key, window.key);
}

// ---- Gathers ---------------------------------------------------------------------------------------------------------------------------------------------

struct GatherCase {
  Dims shape, indices;
  int64_t axis;
};

std::vector<int64_t> index_values(int64_t count, int64_t extent, uint64_t seed) {
  std::vector<int64_t> values;
  for (int64_t i = 0; i < count; ++i) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    values.push_back(static_cast<int64_t>((seed >> 33) % (2 * extent)) - extent);
  }
  return values;
}

void gather_call(bool elements, const GatherCase& c, DType dtype, DType index, bool strided) {
  const int axis = static_cast<int>(c.axis < 0 ? c.axis + c.shape.size() : c.axis);
  Dims dy_dims;
  if (elements) {
    dy_dims = c.indices;
  } else {
    for (int d = 0; d < axis; ++d) dy_dims.push_back(c.shape[d]);
    for (const int64_t d : c.indices) dy_dims.push_back(d);
    for (int d = axis + 1; d < c.shape.size(); ++d) dy_dims.push_back(c.shape[d]);
  }
  const Tensor dy = filled(dtype, dy_dims, 5);
  const int64_t extent = c.shape[axis];
  const std::vector<int64_t> values = index_values(element_count(c.indices), std::max<int64_t>(extent, 1), 3);
  const Tensor at = Tensor::of(index, c.indices, values);
  const Strided dy_other = strided_copy(dy), at_other = strided_copy(at);
  const DType sum = accumulator_of(dtype);
  std::vector<uint64_t> want(element_count(c.shape), 0);
  for (int64_t i = 0; i < dy.elements(); ++i) {
    const Dims from = unravel(dy_dims, i);
    Dims to;
    int64_t which = i;
    if (elements) {
      to = from;
    } else {
      Dims k;
      for (int d = 0; d < from.size(); ++d) {
        if (d == axis) to.push_back(0);
        if (d >= axis && d < axis + c.indices.size())
          k.push_back(from[d]);
        else
          to.push_back(from[d]);
      }
      if (to.size() < c.shape.size()) to.push_back(0);
      which = ravel(c.indices, k);
    }
    to[axis] = values[which] < 0 ? values[which] + extent : values[which];
    uint64_t& place = want[ravel(c.shape, to)];
    place = ir::eval_binary(ir::BinaryOp::add, sum, place, ir::eval_cast(dtype, sum, bits_at(dy, i)));
  }
  const Tensor shape = ints(std::vector<int64_t>(c.shape.begin(), c.shape.end()));
  const Tensor &in_dy = strided ? dy_other.tensor : dy, &in_at = strided ? at_other.tensor : at;
  const std::vector<Tensor> inputs = elements ? std::vector<Tensor>{in_dy, shape, in_at} : std::vector<Tensor>{shape, in_at, in_dy};
  expect_everywhere(op(elements ? "GatherElementsGrad" : "GatherGrad"), inputs, {{"axis", c.axis}}, dtype, c.shape, want, !want.empty() && dy.elements() > 0);
}

TEST(GatherElementsGrad, EveryCase) {
  const std::vector<GatherCase> all{{{7}, {20}, 0},        {{5, 4}, {9, 4}, 0},    {{5, 4}, {3, 2}, 0},        {{5, 4}, {5, 11}, -1}, {{5, 4}, {2, 11}, 1}, {{3, 4, 5}, {2, 9, 3}, 1},
                                    {{3, 4, 5}, {3, 4, 5}, 1}, {{3, 4, 5}, {1, 4, 6}, 2}, {{2, 1, 3, 4}, {2, 1, 2, 4}, 0}, {{4, 3}, {0, 3}, 0}, {{0, 3}, {0, 3}, 1}, {{1, 1}, {1, 1}, 0}};
  for (size_t i = 0; i < all.size(); ++i)
    for (const bool strided : {false, true}) {
      SCOPED_TRACE("case " + std::to_string(i) + (strided ? ", strided" : ""));
      gather_call(true, all[i], DType::f32, i % 2 ? DType::i32 : DType::i64, strided);
      if (HasFatalFailure()) return;
    }
}

TEST(GatherGrad, EveryCase) {
  const std::vector<GatherCase> all{{{7}, {20}, 0},      {{7}, {}, 0},        {{5, 4}, {9}, 0},           {{5, 4}, {3, 2}, 1},    {{5, 4}, {3, 2}, 0},
                                    {{3, 4, 5}, {6}, 1}, {{3, 4, 5}, {}, -2}, {{3, 4, 5}, {2, 1, 3}, -1}, {{3, 0, 5}, {0}, 1}, {{0, 4}, {3}, 1}, {{2, 3, 4, 2}, {2, 3}, 1}};
  for (size_t i = 0; i < all.size(); ++i)
    for (const bool strided : {false, true}) {
      SCOPED_TRACE("case " + std::to_string(i) + (strided ? ", strided" : ""));
      gather_call(false, all[i], DType::f32, i % 2 ? DType::i32 : DType::i64, strided);
      if (HasFatalFailure()) return;
    }
}

TEST(Gathers, EveryDtype) {
  for (const DType dtype : {DType::f16, DType::bf16, DType::f32, DType::f64}) {
    gather_call(true, {{4, 6}, {40, 5}, 0}, dtype, DType::i64, false);
    gather_call(false, {{4, 6}, {40}, 0}, dtype, DType::i32, false);
    if (HasFatalFailure()) return;
  }
}

TEST(Gathers, MergeToThreeDims) {
  const std::vector<Tensor> inputs{ints({2, 3, 7, 4, 5}), filled(DType::i64, {6, 2}, 1), filled(DType::f32, {2, 3, 6, 2, 4, 5}, 1)};
  const Operands operands(op("GatherGrad").schema(), inputs);
  const Attributes attributes{{"axis", int64_t{2}}};
  const Plan plan = op("GatherGrad").check(operands.request(attributes));
  EXPECT_EQ(to_string(plan.views[0].dims), "[12]");
  EXPECT_EQ(to_string(plan.views[1].dims), "[6,12,20]");
  EXPECT_EQ(to_string(plan.views[2].dims), "[6,7,20]");
}

// ---- BroadcastGrad ---------------------------------------------------------------------------------------------------------------------------------------

uint64_t add(DType t, uint64_t a, uint64_t b) { return ir::eval_binary(ir::BinaryOp::add, t, a, b); }

// The tree, over a dim's elements.
uint64_t tree_sum(DType t, const std::vector<uint64_t>& x, size_t block) {
  uint64_t total = 0;
  for (size_t first = 0; first < x.size(); first += block) {
    uint64_t p[16] = {};
    for (size_t i = first; i < std::min(x.size(), first + block); ++i) p[(i - first) % 16] = add(t, p[(i - first) % 16], x[i]);
    for (int h = 8; h > 0; h /= 2)
      for (int l = 0; l < h; ++l) p[l] = add(t, p[l], p[l + h]);
    total = add(t, total, p[0]);
  }
  return total;
}

struct Group {
  int64_t extent;
  bool reduced;
};

// The sum at fixed kept indices: `at` holds every kept group's.
uint64_t group_sum(const Tensor& dy, const std::vector<Group>& groups, size_t g, int64_t flat, const std::vector<int64_t>& at) {
  const DType sum = accumulator_of(dy.dtype());
  if (g == groups.size()) return ir::eval_cast(dy.dtype(), sum, bits_at(dy, flat));
  if (!groups[g].reduced) return group_sum(dy, groups, g + 1, flat * groups[g].extent + at[g], at);
  std::vector<uint64_t> x;
  for (int64_t i = 0; i < groups[g].extent; ++i) x.push_back(group_sum(dy, groups, g + 1, flat * groups[g].extent + i, at));
  const size_t block = g + 1 == groups.size() ? 256 : 16, part = 64 * block;
  for (size_t i = g + 1; i < groups.size(); ++i)
    if (groups[i].reduced) return tree_sum(sum, x, block);
  uint64_t total = 0;
  for (size_t first = 0; first < x.size(); first += part)
    total = add(sum, total, tree_sum(sum, {x.begin() + first, x.begin() + std::min(x.size(), first + part)}, block));
  return total;
}

// `groups` alternate; `split` writes a group of 12 or more as two axes.
void broadcast_call(const std::vector<Group>& groups, DType dtype, bool split, bool absent) {
  Dims dims, shape;
  bool leading = true;
  for (const Group& g : groups) {
    std::vector<int64_t> axes{g.extent};
    if (split && g.extent % 4 == 0 && g.extent > 4) axes = {4, g.extent / 4};
    for (const int64_t a : axes) {
      dims.push_back(a);
      if (leading && absent && g.reduced) continue;
      leading = false;
      shape.push_back(g.reduced ? 1 : a);
    }
  }
  const Tensor dy = filled(dtype, dims, 11);
  std::vector<uint64_t> want(element_count(shape));
  Dims kept;
  for (const Group& g : groups) kept.push_back(g.reduced ? 1 : g.extent);
  for (size_t i = 0; i < want.size(); ++i) {
    const Dims at = unravel(kept, i);
    want[i] = group_sum(dy, groups, 0, 0, std::vector<int64_t>(at.begin(), at.end()));
  }
  expect_everywhere(op("BroadcastGrad"), {dy, ints(std::vector<int64_t>(shape.begin(), shape.end()))}, {}, dtype, shape, want);
}

TEST(BroadcastGrad, FollowsTheTree) {
  const std::vector<std::vector<Group>> all{{{5, true}},
                                            {{700, true}},
                                            {{256, true}},
                                            {{40, true}, {3, false}},
                                            {{3, true}, {70, false}},
                                            {{33, true}, {200, false}},
                                            {{3, false}, {530, true}},
                                            {{3, false}, {16, true}, {8, false}},
                                            {{3, false}, {19, true}, {5, false}},
                                            {{20, true}, {3, false}, {300, true}},
                                            {{20, true}, {2, false}, {18, true}, {20, false}},
                                            {{3, false}, {4, true}, {2, false}, {3, true}},
                                            {{0, true}, {3, false}},
                                            {{3, false}, {0, true}},
                                            {{1024, true}, {2, false}},
                                            {{2075, true}, {3, false}},
                                            {{2, false}, {33000, true}},
                                            {{2, true}, {2, false}, {1030, true}, {2, false}},
                                            {{24, false}}};
  for (size_t i = 0; i < all.size(); ++i)
    for (const bool split : {false, true}) {
      SCOPED_TRACE("case " + std::to_string(i) + (split ? ", split" : ""));
      broadcast_call(all[i], DType::f32, split, split);
      if (HasFatalFailure()) return;
    }
}

TEST(BroadcastGrad, EveryDtype) {
  for (const DType dtype : {DType::f16, DType::bf16, DType::f32, DType::f64}) {
    broadcast_call({{20, true}, {9, false}, {270, true}}, dtype, false, true);
    broadcast_call({{2, false}, {37, true}, {9, false}}, dtype, false, true);
    if (HasFatalFailure()) return;
  }
}

TEST(BroadcastGrad, StridedInputs) {
  // An expanded gradient: every element is one.
  float one = 1.5f;
  const Tensor expanded = Tensor::borrow(static_cast<void*>(&one), DType::f32, {6, 40}, {0, 0});
  for (const How& how : hows()) {
    EXPECT_EQ(bits_at(run(op("BroadcastGrad"), {expanded, ints({})}, {}, how)[0], 0), ir::bits_from_double(DType::f32, 360)) << describe(how);
    const Tensor dense = Tensor::of(DType::f32, {3, 4}, std::vector<int64_t>{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12});
    const Strided other = strided_copy(dense);
    const Tensor rows = run(op("BroadcastGrad"), {other.tensor, ints({4})}, {}, how)[0], columns = run(op("BroadcastGrad"), {other.tensor, ints({3, 1})}, {}, how)[0];
    const int64_t row_sums[] = {15, 18, 21, 24}, column_sums[] = {10, 26, 42};
    for (int i = 0; i < 4; ++i) EXPECT_EQ(bits_at(rows, i), ir::bits_from_int(DType::f32, row_sums[i])) << describe(how);
    for (int i = 0; i < 3; ++i) EXPECT_EQ(bits_at(columns, i), ir::bits_from_int(DType::f32, column_sums[i])) << describe(how);
  }
}

TEST(BroadcastGrad, NegativeZeroSumsToZeroAndCopiesStay) {
  const Tensor dy = Tensor::of(DType::f32, {2, 1}, std::vector<double>{-0.0, -0.0});
  for (const How& how : hows()) {
    EXPECT_EQ(bits_at(run(op("BroadcastGrad"), {dy, ints({})}, {}, how)[0], 0), 0u) << describe(how);
    EXPECT_EQ(bits_at(run(op("BroadcastGrad"), {dy, ints({2, 1})}, {}, how)[0], 0), 0x80000000u) << describe(how);
  }
}

// ---- BroadcastGradientArgs -------------------------------------------------------------------------------------------------------------------------------

std::vector<int64_t> values_of(const Tensor& t) {
  std::vector<int64_t> values;
  for (int64_t i = 0; i < t.elements(); ++i) values.push_back(integer_element(t, i));
  return values;
}

TEST(BroadcastGradientArgs, AxesLastToFirst) {
  struct Row {
    std::vector<int64_t> a, b, a_axes, b_axes;
  };
  const std::vector<Row> rows{{{}, {2, 3}, {1, 0}, {}}, {{1}, {1}, {}, {}},          {{2, 3}, {3}, {}, {0}},           {{1, 3}, {0, 3}, {0}, {}}, {{0, 3}, {1, 3}, {}, {0}},
                              {{2, 1, 4}, {5, 1}, {1}, {2, 0}}, {{-1}, {-1}, {}, {}}, {{}, {}, {}, {}}, {{1, 1}, {4, 1, 1}, {0}, {}}};
  for (const Row& row : rows)
    for (const How& how : hows()) {
      const auto got = run(op("BroadcastGradientArgs"), {ints(row.a), ints(row.b)}, {}, how);
      EXPECT_EQ(values_of(got[0]), row.a_axes) << describe(how);
      EXPECT_EQ(values_of(got[1]), row.b_axes) << describe(how);
    }
  How one;
  one.wanted = 2;
  EXPECT_EQ(values_of(run(op("BroadcastGradientArgs"), {ints({2, 3}), ints({3})}, {}, one)[1]), std::vector<int64_t>{0});
}

}  // namespace
}  // namespace gradloom
