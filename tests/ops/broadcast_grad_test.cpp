// BroadcastGrad and BroadcastGradientArgs in the interpreter: the reduction tree, axes, strides, any-shape and
// specialised, authored and scheduled.
#include "tests/ops/ops_expect.h"

namespace gradloom {
namespace {

using namespace testing_ops;

uint64_t add(DType t, uint64_t a, uint64_t b) { return ir::eval_binary(ir::BinaryOp::add, t, a, b); }

// The reduction tree over a dim's elements.
uint64_t tree_sum(DType t, const std::vector<uint64_t>& x, size_t block) {
  uint64_t total = 0;
  for (size_t first = 0; first < x.size(); first += block) {
    uint64_t p[16] = {};
    for (size_t i = first; i < std::min(x.size(), first + block); ++i)
      p[(i - first) % 16] = add(t, p[(i - first) % 16], x[i]);
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

// The sum at fixed kept indices: `at` contains every kept group's.
uint64_t group_sum(const Tensor& dy, const std::vector<Group>& groups, size_t g, int64_t flat,
                   const std::vector<int64_t>& at) {
  const DType sum = accumulator_of(dy.dtype());
  if (g == groups.size()) return ir::eval_cast(dy.dtype(), sum, bits_at(dy, flat));
  if (!groups[g].reduced) return group_sum(dy, groups, g + 1, flat * groups[g].extent + at[g], at);
  std::vector<uint64_t> x;
  for (int64_t i = 0; i < groups[g].extent; ++i)
    x.push_back(group_sum(dy, groups, g + 1, flat * groups[g].extent + i, at));
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
  expect_everywhere(op("BroadcastGrad"), {dy, ints(std::vector<int64_t>(shape.begin(), shape.end()))}, {}, dtype, shape,
                    want);
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
  // An expanded gradient: all elements are one in memory.
  float one = 1.5f;
  const Tensor expanded = Tensor::borrow(static_cast<void*>(&one), DType::f32, {6, 40}, {0, 0});
  for (const How& how : hows()) {
    EXPECT_EQ(bits_at(run(op("BroadcastGrad"), {expanded, ints({})}, {}, how)[0], 0),
              ir::bits_from_double(DType::f32, 360))
        << describe(how);
    const Tensor dense = Tensor::of(DType::f32, {3, 4}, std::vector<int64_t>{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12});
    const Strided other = strided_copy(dense);
    const Tensor rows = run(op("BroadcastGrad"), {other.tensor, ints({4})}, {}, how)[0],
                 columns = run(op("BroadcastGrad"), {other.tensor, ints({3, 1})}, {}, how)[0];
    const int64_t row_sums[] = {15, 18, 21, 24}, column_sums[] = {10, 26, 42};
    for (int i = 0; i < 4; ++i)
      EXPECT_EQ(bits_at(rows, i), ir::bits_from_int(DType::f32, row_sums[i])) << describe(how);
    for (int i = 0; i < 3; ++i)
      EXPECT_EQ(bits_at(columns, i), ir::bits_from_int(DType::f32, column_sums[i])) << describe(how);
  }
}

// A part of 64 blocks is read in full: 256 elements a block in a row, 16 in columns.
TEST(BroadcastGrad, StagedReadsNothingAfterTheLastBlock) {
  How staged{.strategy = "staged"};
  staged.target.gpu = true;
  const std::vector<std::pair<Dims, std::vector<int64_t>>> all{{{16384 - 256}, {}},  {{16384 + 256}, {}},
                                                               {{2 * 16384}, {}},    {{1024 + 16, 3}, {3}},
                                                               {{2 * 1024, 3}, {3}}, {{2, 16384 + 512}, {2, 1}}};
  for (const auto& [dims, shape] : all)
    for (const bool scheduled : {false, true}) {
      SCOPED_TRACE(to_string(dims) + (scheduled ? " scheduled" : ""));
      staged.scheduled = scheduled;
      const Tensor dy = filled(DType::f32, dims, 5);
      const Tensor got = run(op("BroadcastGrad"), {dy, ints(shape)}, {}, staged)[0],
                   want = run(op("BroadcastGrad"), {dy, ints(shape)})[0];
      for (int64_t i = 0; i < want.elements(); ++i) EXPECT_EQ(bits_at(got, i), bits_at(want, i));
    }
}

TEST(BroadcastGrad, NegativeZeroSumsToZeroAndCopiesStay) {
  const Tensor dy = Tensor::of(DType::f32, {2, 1}, std::vector<double>{-0.0, -0.0});
  for (const How& how : hows()) {
    EXPECT_EQ(bits_at(run(op("BroadcastGrad"), {dy, ints({})}, {}, how)[0], 0), 0u) << describe(how);
    EXPECT_EQ(bits_at(run(op("BroadcastGrad"), {dy, ints({2, 1})}, {}, how)[0], 0), 0x80000000u) << describe(how);
  }
}

std::vector<int64_t> values_of(const Tensor& t) {
  std::vector<int64_t> values;
  for (int64_t i = 0; i < t.elements(); ++i) values.push_back(integer_element(t, i));
  return values;
}

TEST(BroadcastGradientArgs, AxesLastToFirst) {
  struct Row {
    std::vector<int64_t> a, b, a_axes, b_axes;
  };
  const std::vector<Row> rows{{{}, {2, 3}, {1, 0}, {}},  {{1}, {1}, {}, {}},        {{2, 3}, {3}, {}, {0}},
                              {{1, 3}, {0, 3}, {0}, {}}, {{0, 3}, {1, 3}, {}, {0}}, {{2, 1, 4}, {5, 1}, {1}, {2, 0}},
                              {{-1}, {-1}, {}, {}},      {{}, {}, {}, {}},          {{1, 1}, {4, 1, 1}, {0}, {}}};
  for (const Row& row : rows)
    for (const How& how : hows()) {
      const auto got = run(op("BroadcastGradientArgs"), {ints(row.a), ints(row.b)}, {}, how);
      EXPECT_EQ(values_of(got[0]), row.a_axes) << describe(how);
      EXPECT_EQ(values_of(got[1]), row.b_axes) << describe(how);
    }
  How one;
  one.wanted = 2;
  EXPECT_EQ(values_of(run(op("BroadcastGradientArgs"), {ints({2, 3}), ints({3})}, {}, one)[1]),
            std::vector<int64_t>{0});
}

}  // namespace
}  // namespace gradloom
