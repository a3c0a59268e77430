// The gather gradients in the interpreter, against plain loops: dtypes, axes, strides, any-shape and specialised,
// authored and scheduled, accumulate.
#include "ops/gather/gather_strategies.h"
#include "ops/patterns/scatter.h"
#include "tests/ops/ops_expect.h"
#include "tests/support/named_strategy.h"

namespace gradloom {
namespace {

using namespace testing_ops;

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
  const std::vector<Tensor> inputs =
      elements ? std::vector<Tensor>{in_dy, shape, in_at} : std::vector<Tensor>{shape, in_at, in_dy};
  expect_everywhere(op(elements ? "GatherElementsGrad" : "GatherGrad"), inputs, {{"axis", c.axis}}, dtype, c.shape,
                    want, !want.empty() && dy.elements() > 0);
}

TEST(GatherElementsGrad, EveryCase) {
  const std::vector<GatherCase> all{{{7}, {20}, 0},
                                    {{5, 4}, {9, 4}, 0},
                                    {{5, 4}, {3, 2}, 0},
                                    {{5, 4}, {5, 11}, -1},
                                    {{5, 4}, {2, 11}, 1},
                                    {{3, 4, 5}, {2, 9, 3}, 1},
                                    {{3, 4, 5}, {3, 4, 5}, 1},
                                    {{3, 4, 5}, {1, 4, 6}, 2},
                                    {{2, 1, 3, 4}, {2, 1, 2, 4}, 0},
                                    {{4, 3}, {0, 3}, 0},
                                    {{0, 3}, {0, 3}, 1},
                                    {{1, 1}, {1, 1}, 0}};
  for (size_t i = 0; i < all.size(); ++i)
    for (const bool strided : {false, true}) {
      SCOPED_TRACE("case " + std::to_string(i) + (strided ? ", strided" : ""));
      gather_call(true, all[i], DType::f32, i % 2 ? DType::i32 : DType::i64, strided);
      if (HasFatalFailure()) return;
    }
}

TEST(GatherGrad, EveryCase) {
  const std::vector<GatherCase> all{
      {{7}, {20}, 0},      {{7}, {}, 0},        {{5, 4}, {9}, 0},         {{5, 4}, {3, 2}, 1},
      {{5, 4}, {3, 2}, 0}, {{3, 4, 5}, {6}, 1}, {{3, 4, 5}, {}, -2},      {{3, 4, 5}, {2, 1, 3}, -1},
      {{3, 0, 5}, {0}, 1}, {{0, 4}, {3}, 1},    {{2, 3, 4, 2}, {2, 3}, 1}};
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

// With caches so small that there are many bins and chunks: in groups, with a remainder; for one thread and for
// several.
TEST(Gathers, PartitionGivesTheDefinitionsBits) {
  struct Sizes {
    int64_t extent, count;
  };
  for (const auto [extent, count] : {Sizes{1100, 1300}, Sizes{1024, 1280}, Sizes{31, 64}, Sizes{2000, 5}})
    for (const DType dtype : {DType::f32, DType::f64, DType::bf16})
      for (const bool accumulate : {false, true})
        for (How how : hows(accumulate))
          for (const int threads : {1, 2}) {
            how.target.threads = threads;
            const std::vector<Tensor> inputs{filled(dtype, {count}, 5), ints({extent}),
                                             Tensor::of(DType::i32, {count}, index_values(count, extent, 3))};
            const auto sums = [&](const char* strategy) {
              how.strategy = strategy;
              return run(op("GatherElementsGrad"), inputs, {}, how, {filled(dtype, {extent}, 99)})[0];
            };
            const Tensor want = sums("direct"), got = sums("partition");
            for (int64_t i = 0; i < extent; ++i)
              ASSERT_EQ(bits_at(got, i), bits_at(want, i)) << describe(how) << ", element " << i << " of " << extent;
          }
}

// Few rows of dX and many, fewer than the parts in which they are written; shares of one row of dY, of several and
// uneven; one strip and many, distributed with a shorter last task; indices that skip strips.
TEST(Gathers, PipelinedGivesTheDefinitionsBits) {
  struct Sizes {
    Dims shape, indices;
    int64_t axis;
  };
  for (const auto& [shape, indices, axis] :
       {Sizes{{2, 1, 32}, {2, 3, 32}, 1}, Sizes{{2, 3, 96}, {2, 1, 96}, 1}, Sizes{{3, 5, 48}, {3, 12, 48}, 1},
        Sizes{{1, 23, 64}, {1, 7, 64}, 1}, Sizes{{3, 9, 96}, {2, 20, 64}, 1}, Sizes{{40, 96}, {17, 32}, 0},
        Sizes{{9, 24, 32}, {9, 5, 32}, 1}, Sizes{{7, 100, 96}, {7, 12, 96}, 1}, Sizes{{130, 544}, {20, 544}, 0}})
    for (const DType dtype : {DType::f32, DType::f64, DType::bf16})
      for (const bool accumulate : {false, true})
        for (How how : hows(accumulate))
          for (const int threads : {1, 2}) {
            const int64_t count = element_count(indices), elements = element_count(shape), line = 64 / size_of(dtype);
            if (how.any_shape || shape.back() % line != 0) continue;  // served by other strategies
            how.target.threads = threads;
            const std::vector<Tensor> inputs{filled(dtype, indices, 5),
                                             ints(std::vector<int64_t>(shape.begin(), shape.end())),
                                             Tensor::of(DType::i32, indices, index_values(count, shape[axis], 3))};
            const auto sums = [&](const char* strategy) {
              how.strategy = strategy;
              return run(op("GatherElementsGrad"), inputs, {{"axis", axis}}, how, {filled(dtype, shape, 99)})[0];
            };
            const Tensor want = sums("direct"), got = sums("pipelined");
            for (int64_t i = 0; i < elements; ++i)
              ASSERT_EQ(bits_at(got, i), bits_at(want, i))
                  << describe(how) << ", element " << i << " of " << to_string(shape) << ", " << threads << " threads";
          }
}

// Of two bad indices, the one that comes first in indices is reported, whichever strip each is in.
TEST(Gathers, PipelinedNamesTheFirstBadIndex) {
  const Dims dims{3, 6, 96};
  for (const int64_t bad : {int64_t{0}, int64_t{95}, int64_t{96 * 6 + 33}, element_count(dims) - 1})
    for (const int threads : {1, 2}) {
      std::vector<int64_t> values = index_values(element_count(dims), 9, 3);
      values[bad] = 9, values.back() = -10;
      How how{.scheduled = true, .strategy = "pipelined"};
      how.target.threads = threads;
      try {
        run(op("GatherElementsGrad"),
            {filled(DType::f32, dims, 5), ints({3, 9, 96}), Tensor::of(DType::i64, dims, values)},
            {{"axis", int64_t{1}}}, how);
        FAIL() << "no error";
      } catch (const Error& error) {
        const Dims at = unravel(dims, bad);
        EXPECT_EQ(error.code(), ErrorCode::out_of_range);
        EXPECT_NE(std::string(error.what()).find(to_string(at)), std::string::npos)
            << error.what() << ", not " << to_string(at);
      }
    }
}

TEST(Gathers, PipelinedWhereItIsFaster) {
  const auto first = [](const Dims& shape, const Dims& indices, int64_t axis, DType dtype, bool accumulate,
                        int64_t l2_bytes = 1 << 20) {
    static const float nothing = 0;
    const std::vector<Tensor> inputs{Tensor::borrow(&nothing, dtype, indices),
                                     ints(std::vector<int64_t>(shape.begin(), shape.end())),
                                     Tensor::borrow(&nothing, DType::i64, indices)};
    const Operands operands(op("GatherElementsGrad").schema(), inputs);
    const Plan plan = op("GatherElementsGrad").check(operands.request({{"axis", axis}}, ~0u, accumulate));
    return serving_names(op("GatherElementsGrad"), plan, {.l2_bytes = l2_bytes})[0];
  };
  EXPECT_EQ(first({64, 1024, 256}, {64, 128, 256}, 1, DType::f32, false), "pipelined");
  EXPECT_EQ(first({64, 1024, 256}, {64, 128, 256}, 1, DType::f32, true), "pipelined");
  EXPECT_EQ(first({64, 1024, 256}, {64, 128, 256}, 1, DType::bf16, false), "pipelined");
  EXPECT_EQ(first({1024, 16384}, {256, 16384}, 0, DType::f32, false), "pipelined");
  EXPECT_EQ(first({64, 1024, 256}, {64, 342, 256}, 1, DType::f32, false), "strip");  // more to read than to write
  EXPECT_EQ(first({64, 1024, 256}, {64, 128, 256}, 1, DType::f32, false, 1 << 18), "strip");  // a smaller cache
  EXPECT_EQ(first({4096, 4096}, {512, 4096}, 0, DType::f32, false), "strip");                 // longer strips
  EXPECT_EQ(first({4096, 32, 256}, {4096, 8, 256}, 1, DType::f32, false), "strip");           // short ones
  EXPECT_EQ(first({4096, 64, 256}, {4096, 8, 256}, 1, DType::f32, true), "strip");            // dX is read, too
  EXPECT_EQ(first({64, 1024, 250}, {64, 128, 250}, 1, DType::f32, false), "strip");           // partial cache lines
  EXPECT_EQ(first({64, 1024, 256}, {64, 128, 250}, 1, DType::f32, false), "strip");
  EXPECT_EQ(first({2, 1024, 256}, {2, 128, 256}, 1, DType::f32, false), "strip");  // all of it stays resident in cache
}

// Sorting by row looks at the number of indices and at a row's bytes; the edges are where times were even.
TEST(Gathers, SortedWhereItIsFaster) {
  EXPECT_FALSE(sorting_pays(1 << 20, 1 << 16, 64));
  EXPECT_FALSE(sorting_pays(4096, 1 << 16, 128));
  EXPECT_TRUE(sorting_pays(4097, 1 << 16, 128));
  EXPECT_TRUE(sorting_pays(1 << 20, 1 << 16, 252));
  EXPECT_TRUE(sorting_pays(1, 1 << 16, 256));
  const auto first = [](int64_t rows, int64_t columns, int64_t count, DType dtype = DType::f32,
                        bool accumulate = false) {
    static const float nothing = 0;
    const std::vector<Tensor> inputs{ints({rows, columns}), Tensor::borrow(&nothing, DType::i64, {count}),
                                     Tensor::borrow(&nothing, dtype, {count, columns})};
    const Operands operands(op("GatherGrad").schema(), inputs);
    const Plan plan = op("GatherGrad").check(operands.request({{"axis", int64_t{0}}}, ~0u, accumulate));
    return serving_names(op("GatherGrad"), plan, {.l2_bytes = 1 << 20})[0];
  };
  EXPECT_EQ(first(500000, 2, 5000), "in_place");
  EXPECT_EQ(first(500000, 8, 100), "in_place");
  EXPECT_EQ(first(500000, 8, 500000), "in_place");
  EXPECT_EQ(first(2000000, 20, 40000), "in_place");
  EXPECT_EQ(first(50000, 768, 4096), "grouped");
  EXPECT_EQ(first(1000000, 64, 65536), "grouped");
  EXPECT_EQ(first(128, 64, 200), "grouped");           // dX in the L1 cache
  EXPECT_EQ(first(2048, 64, 100000), "grouped");       // each row named often
  EXPECT_EQ(first(2048, 64, 1000000), "in_place");     // dY too long to be read in random order
  EXPECT_EQ(first(65536, 16, 65536 / 4), "in_place");  // 4 MiB
  EXPECT_EQ(first(65536, 16, 65536 / 2), "strip");
  EXPECT_EQ(first(8192, 16, 65536), "in_place");          // half of the L2 cache
  EXPECT_EQ(first(500000, 8, 100, DType::f16), "strip");  // sums of another dtype
  EXPECT_EQ(first(500000, 2, 100, DType::f16), "direct");
  EXPECT_EQ(first(500000, 32, 100, DType::bf16), "grouped");
  EXPECT_EQ(first(500000, 8, 5000, DType::f32, true), "touched_rows");
  EXPECT_EQ(first(1000000, 64, 250000, DType::f32, true), "touched_rows");
  EXPECT_EQ(first(1000000, 64, 300000, DType::f32, true), "grouped");
  EXPECT_EQ(first(500000, 8, 100000, DType::f32, true), "grouped");
  EXPECT_EQ(first(500000, 4, 100000, DType::f32, true), "direct");
}

// A bin takes half of the cache and a chunk the other half, however large dX is.
TEST(Gathers, PartitionLengthsOfAHugeTensor) {
  const ir::Target target;
  for (const int shift : {40, 57, 58, 61}) {
    const PartitionLengths lengths =
        partition_lengths(DType::f32, ir::Expr(int64_t{1} << shift), ir::Expr(int64_t{1} << 40), target);
    EXPECT_EQ(lengths.bin * 4, target.l2_bytes / 2) << shift;
    EXPECT_EQ(lengths.chunk * 4, target.l2_bytes / 2) << shift;
  }
}

// From row to row and from strip to strip, on one thread and distributed.
TEST(Gathers, SumsStayAllocated) {
  const Attributes rows{{"axis", int64_t{1}}}, columns{{"axis", int64_t{0}}};
  const auto steps = [](const Attributes& attributes, int64_t extent, const char* strategy, const ir::Target& target,
                        bool accumulate = false) {
    const std::vector<Tensor> inputs{
        filled(DType::f32, {extent, extent}, 1), ints({extent, extent}),
        Tensor::of(DType::i64, {extent, extent}, index_values(extent * extent, extent, 3))};
    const Operands operands(op("GatherElementsGrad").schema(), inputs);
    const Plan plan = op("GatherElementsGrad").check(operands.request(attributes, ~0u, accumulate));
    return build_kernel(op("GatherElementsGrad"), plan, strategy, target, false, 64, accumulate).trace;
  };
  const auto carried = [](const std::vector<std::string>& trace) {
    return std::any_of(trace.begin(), trace.end(),
                       [](const std::string& step) { return step.starts_with("hoist_zeroed_buffer"); });
  };
  for (const int64_t extent : {64, 256})  // serial, parallel
    for (const int threads : {1, 4}) {
      SCOPED_TRACE(std::to_string(extent) + " on " + std::to_string(threads));
      for (const bool accumulate : {false, true})
        EXPECT_TRUE(carried(steps(rows, extent, "row", {.threads = threads}, accumulate))) << accumulate;
      EXPECT_EQ(carried(steps(columns, extent, "strip", {.l2_bytes = 4096, .threads = threads})),
                extent == 64 || threads == 1);  // 16 columns a strip
    }
}

TEST(Gathers, MergeToThreeDims) {
  const std::vector<Tensor> inputs{ints({2, 3, 7, 4, 5}), filled(DType::i64, {6, 2}, 1),
                                   filled(DType::f32, {2, 3, 6, 2, 4, 5}, 1)};
  const Operands operands(op("GatherGrad").schema(), inputs);
  const Attributes attributes{{"axis", int64_t{2}}};
  const Plan plan = op("GatherGrad").check(operands.request(attributes));
  EXPECT_EQ(to_string(plan.views[0].dims), "[12]");
  EXPECT_EQ(to_string(plan.views[1].dims), "[6,12,20]");
  EXPECT_EQ(to_string(plan.views[2].dims), "[6,7,20]");
}

}  // namespace
}  // namespace gradloom
