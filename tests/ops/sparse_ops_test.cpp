// EmbeddingBagGrad, IndexGrad and SparseGatherGrad against plain loops, against GatherGrad's bits, and what they
// refuse.
#include <map>

#include "tests/ops/ops_expect.h"

namespace gradloom {
namespace {

using namespace testing_ops;

template <class T>
T value(const Tensor& t, int64_t i) {
  T v;
  std::memcpy(&v, static_cast<const char*>(t.data()) + i * sizeof(T), sizeof v);
  return v;
}

template <class T>
std::vector<uint64_t> bits_of(const std::vector<T>& values) {
  std::vector<uint64_t> bits;
  for (const T v : values) bits.push_back(0), std::memcpy(&bits.back(), &v, sizeof v);
  return bits;
}

std::vector<int64_t> drawn(int64_t count, int64_t low, int64_t high, uint64_t seed) {
  std::vector<int64_t> values;
  for (int64_t i = 0; i < count; ++i) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    values.push_back(low + static_cast<int64_t>((seed >> 33) % static_cast<uint64_t>(high - low + 1)));
  }
  return values;
}

struct Bag {
  std::string mode;
  std::vector<int64_t> offsets;
  int64_t count;
  bool weights = false, last = false, by_frequency = false;
  int64_t padding = -1;
};

TEST(EmbeddingBagGrad, IsOnePlainLoop) {
  constexpr int64_t rows = 11, columns = 21;
  const std::vector<Bag> all{{"sum", {0, 4, 4, 20}, 33},
                             {"sum", {0, 4}, 9, true, true, false, 3},
                             {"sum", {0, 4}, 40, true, false, true},
                             {"mean", {0, 0, 7}, 30, false, true, false, 10},
                             {"mean", {0, 30, 30}, 30, false, false, true, 0},
                             {"max", {0, 2, 2, 3}, 6, false, false, false, 5},
                             {"sum", {0, 0}, 0},
                             {"mean", {}, 0, false, true}};
  for (const Bag& bag : all) {
    const int64_t bags = std::ssize(bag.offsets);
    const std::vector<int64_t> index = drawn(bag.count, -rows, rows - 1, 5);
    std::vector<int64_t> starts = bag.offsets;
    starts.push_back(bag.count);
    const std::vector<int64_t> chosen = drawn(bags * columns, 0, rows - 1, 6);
    const Tensor dy = filled(DType::f32, {bags, columns}, 7), weights = filled(DType::f32, {bag.count}, 8);

    std::vector<float> want(rows * columns, 0);
    std::vector<int64_t> times(rows, 0);
    const auto row = [&](int64_t p) { return index[p] < 0 ? index[p] + rows : index[p]; };
    for (int64_t b = 0; b < bags; ++b) {
      int64_t live = 0;
      for (int64_t p = starts[b]; p < starts[b + 1]; ++p) live += row(p) != bag.padding;
      for (int64_t q = 0; q < columns && bag.mode == "max" && live > 0; ++q)
        want[chosen[b * columns + q] * columns + q] += value<float>(dy, b * columns + q);
      for (int64_t p = starts[b]; p < starts[b + 1] && bag.mode != "max"; ++p) {
        if (row(p) == bag.padding) continue;
        ++times[row(p)];
        for (int64_t q = 0; q < columns; ++q) {
          float v = value<float>(dy, b * columns + q);
          if (bag.weights) v *= value<float>(weights, p);
          if (bag.mode == "mean") v *= 1.0f / static_cast<float>(live);
          want[row(p) * columns + q] += v;
        }
      }
    }
    for (int64_t i = 0; i < rows * columns && bag.by_frequency; ++i)
      want[i] /= static_cast<float>(std::max<int64_t>(times[i / columns], 1));

    Attributes attributes{{"mode", bag.mode},
                          {"include_last_offset", int64_t{bag.last}},
                          {"scale_grad_by_freq", int64_t{bag.by_frequency}}};
    if (bag.padding >= 0) attributes["padding_idx"] = bag.padding - rows;
    std::vector<Tensor> inputs{ints({rows, columns}), ints(index), ints(bag.last ? starts : bag.offsets), dy};
    if (bag.weights) inputs.push_back(weights);
    if (bag.mode == "max") inputs.insert(inputs.end(), {Tensor(), Tensor::of(DType::i64, {bags, columns}, chosen)});
    expect_everywhere(op("EmbeddingBagGrad"), inputs, attributes, DType::f32, {rows, columns}, bits_of(want));
  }
}

struct Indexed {
  Dims shape;
  std::vector<int64_t> axes;
  std::vector<Dims> indices;
  Dims broadcast, dy;
  int front;  // the position of the broadcast dims in dY
};

TEST(IndexGrad, IsOnePlainLoop) {
  const std::vector<Indexed> all{{{5, 6, 21}, {0, 1}, {{17}, {17}}, {17}, {17, 21}, 0},
                                 {{5, 6}, {0, 1}, {{4, 1}, {3}}, {4, 3}, {4, 3}, 0},
                                 {{3, 5, 6, 9}, {1, 2}, {{13}, {1}}, {13}, {3, 13, 9}, 1},
                                 {{5, 7, 6}, {0, 2}, {{8}, {8}}, {8}, {8, 7}, 0},
                                 {{2, 5, 7, 6}, {1, 3}, {{4}, {2, 1}}, {2, 4}, {2, 4, 2, 7}, 0},
                                 {{9, 4}, {0}, {{3, 5}}, {3, 5}, {3, 5, 4}, 0},
                                 {{4, 5}, {0, 1}, {{}, {}}, {}, {}, 0},
                                 {{4, 5, 3}, {0, 1}, {{0}, {0}}, {0}, {0, 3}, 0},
                                 {{4, 5, 0}, {0, 1}, {{2}, {2}}, {2}, {2, 0}, 0}};
  for (const Indexed& c : all) {
    const Tensor dy = filled(DType::f32, c.dy, 3);
    std::vector<Tensor> inputs{ints({c.shape.begin(), c.shape.end()}), dy};
    std::vector<std::vector<int64_t>> values;
    for (size_t i = 0; i < c.axes.size(); ++i) {
      const int64_t size = c.shape[static_cast<int>(c.axes[i])];
      values.push_back(drawn(element_count(c.indices[i]), -size, size - 1, 10 + i));
      inputs.push_back(Tensor::of(DType::i64, c.indices[i], values.back()));
    }
    std::vector<float> want(element_count(c.shape), 0);
    for (int64_t e = 0; e < dy.elements(); ++e) {
      const Dims from = unravel(c.dy, e);
      const auto broadcast = [&](int d) { return from[c.front + d]; };
      Dims to;
      int other = 0;
      for (int d = 0; d < c.shape.size(); ++d) {
        const auto found = std::find(c.axes.begin(), c.axes.end(), d);
        if (found == c.axes.end()) {
          if (other == c.front) other += c.broadcast.size();
          to.push_back(from[other++]);
          continue;
        }
        const auto i = static_cast<size_t>(found - c.axes.begin());
        const int lead = c.broadcast.size() - c.indices[i].size();
        Dims at;
        for (int k = 0; k < c.indices[i].size(); ++k) at.push_back(c.indices[i][k] == 1 ? 0 : broadcast(lead + k));
        const int64_t j = values[i][ravel(c.indices[i], at)];
        to.push_back(j < 0 ? j + c.shape[d] : j);
      }
      want[ravel(c.shape, to)] += value<float>(dy, e);
    }
    expect_everywhere(op("IndexGrad"), inputs, {{"axes", c.axes}}, DType::f32, c.shape, bits_of(want));
  }
}

// One definition of a row's sum: GatherGrad's, whatever else the op does.
TEST(SparseOps, HaveGatherGradsBits) {
  constexpr int64_t rows = 40, columns = 19, count = 150;
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const Tensor index = ints(drawn(count, -rows, rows / 4, 9)), dy = filled(dtype, {count, columns}, 4),
                 shape = ints({rows, columns});
    std::vector<int64_t> offsets(count);
    std::iota(offsets.begin(), offsets.end(), 0);
    for (const How& how : hows()) {
      const Tensor dense = run(op("GatherGrad"), {shape, index, dy}, {}, how)[0];
      std::vector<uint64_t> want;
      for (int64_t i = 0; i < dense.elements(); ++i) want.push_back(bits_at(dense, i));
      expect_bits(run(op("IndexGrad"), {shape, dy, index}, {}, how)[0], want, "IndexGrad, " + describe(how));
      expect_bits(
          run(op("EmbeddingBagGrad"), {shape, index, ints(offsets), dy}, {{"mode", std::string("sum")}}, how)[0], want,
          "EmbeddingBagGrad, " + describe(how));

      const std::vector<Tensor> sparse = run(op("SparseGatherGrad"), {shape, index, dy}, {}, how);
      std::vector<uint64_t> scattered(want.size(), 0);
      int64_t before = -1;
      for (int64_t r = 0; r < sparse[0].elements(); ++r) {
        const int64_t row = value<int64_t>(sparse[0], r);
        EXPECT_GT(row, before);
        before = row;
        for (int64_t q = 0; q < columns; ++q) scattered[row * columns + q] = bits_at(sparse[1], r * columns + q);
      }
      EXPECT_EQ(scattered, want) << describe(how);
      std::vector<int64_t> named;
      for (int64_t k = 0; k < count; ++k) named.push_back((value<int64_t>(index, k) + rows) % rows);
      std::sort(named.begin(), named.end());
      EXPECT_EQ(sparse[0].elements(), std::unique(named.begin(), named.end()) - named.begin());
    }
  }
}

TEST(SparseGatherGrad, SortsAsManyBytesAsRowsNeed) {
  for (const int64_t rows : {int64_t{1}, int64_t{2}, int64_t{256}, int64_t{257}, int64_t{70000}, int64_t{1} << 40, int64_t{1} << 59}) {
    const std::vector<int64_t> index = drawn(60, 0, std::min<int64_t>(rows, int64_t{1} << 30) - 1, 3);
    std::vector<int64_t> spread;
    for (const int64_t i : index) spread.push_back(rows > 70000 ? i * (rows >> 30) : i);
    const Tensor dy = filled(DType::f64, {60}, 4);
    std::map<int64_t, double> want;
    for (int64_t k = 0; k < 60; ++k) want[spread[k]] += value<double>(dy, k);
    for (const How& how : hows()) {
      const std::vector<Tensor> got = run(op("SparseGatherGrad"), {ints({rows}), ints(spread), dy}, {}, how);
      ASSERT_EQ(got[0].elements(), std::ssize(want)) << rows << ", " << describe(how);
      int64_t r = 0;
      for (const auto& [row, sum] : want) {
        EXPECT_EQ(value<int64_t>(got[0], r), row) << rows << ", " << describe(how);
        EXPECT_EQ(value<double>(got[1], r++), sum) << rows << ", " << describe(how);
      }
    }
  }
}

void refused(const char* name, const std::vector<Tensor>& inputs, const Attributes& attributes, ErrorCode code,
             const std::string& message, bool accumulate = false) {
  for (How how : hows(accumulate)) {
    try {
      run(op(name), inputs, attributes, how);
      ADD_FAILURE() << "not refused; expected: " << message;
    } catch (const Error& error) {
      EXPECT_EQ(std::string(error.what()), message);
      EXPECT_EQ(error.code(), code) << message;
    }
  }
}
constexpr ErrorCode invalid = ErrorCode::invalid_argument, range = ErrorCode::out_of_range,
                    unsupported = ErrorCode::unsupported;

TEST(SparseOps, RefuseBadIndicesByPosition) {
  const auto floats = [](const Dims& dims) { return filled(DType::f32, dims, 1); };
  const Attributes sum{{"mode", std::string("sum")}}, last{{"include_last_offset", int64_t{1}}},
      max{{"mode", std::string("max")}};
  const Tensor shape = ints({4, 2});
  const std::string bag = "EmbeddingBagGrad: ";
  refused("EmbeddingBagGrad", {shape, ints({0, 4, -5}), ints({0, 2}), floats({2, 2})}, sum, range,
          bag + "input 1 (indices)[1] is 4; it must be in [-4, 3]");
  refused("EmbeddingBagGrad", {shape, ints({0, 1, 2}), ints({1, 2}), floats({2, 2})}, {}, invalid,
          bag + "input 2 (offsets)[0] is 1; it must be 0");
  refused("EmbeddingBagGrad", {shape, ints({0, 1, 9}), ints({0, 2, 1}), floats({3, 2})}, sum, invalid,
          bag + "input 2 (offsets)[2] is 1; it must be in [2, 3]");
  refused("EmbeddingBagGrad", {shape, ints({0, 1, 2}), ints({0, 4}), floats({2, 2})}, {}, invalid,
          bag + "input 2 (offsets)[1] is 4; it must be in [0, 3]");
  refused("EmbeddingBagGrad", {shape, ints({0, 1, 2}), ints({0, 1, 2}), floats({2, 2})}, last, invalid,
          bag + "input 2 (offsets)[2] is 2; it must be 3");
  refused("EmbeddingBagGrad",
          {shape, ints({0, 1}), ints({0}), floats({1, 2}), Tensor(), Tensor::of(DType::i64, {1, 2}, std::vector{0, 4})},
          max, range, bag + "input 5 (max_indices)[0,1] is 4; it must be in [-4, 3]");
  refused("IndexGrad",
          {ints({4, 5}), floats({2, 3}), Tensor::of(DType::i64, {2, 1}, std::vector{0, 3}), ints({0, -6, 7})}, {},
          range, "IndexGrad: input 3 (indices1)[1] is -6; it must be in [-5, 4]");
  refused("IndexGrad",
          {ints({4, 5}), floats({2, 3}), Tensor::of(DType::i64, {2, 1}, std::vector{0, 4}), ints({0, 4, 1})}, {}, range,
          "IndexGrad: input 2 (indices0)[1,0] is 4; it must be in [-4, 3]");
  refused("IndexGrad", {ints({4, 5, 0}), floats({1, 0}), ints({4}), ints({1})}, {}, range,
          "IndexGrad: input 2 (indices0)[0] is 4; it must be in [-4, 3]");
  refused("IndexGrad", {ints({0, 4, 5}), floats({0, 1}), ints({4}), ints({1})}, {{"axes", std::vector<int64_t>{1, 2}}},
          range, "IndexGrad: input 2 (indices0)[0] is 4; it must be in [-4, 3]");
  refused("SparseGatherGrad", {shape, Tensor::of(DType::i64, {1, 2}, std::vector{3, 4}), floats({1, 2, 2})}, {}, range,
          "SparseGatherGrad: input 1 (indices)[0,1] is 4; it must be in [-4, 3]");
}

TEST(SparseOps, RefuseWhatDoesNotFit) {
  const auto floats = [](const Dims& dims) { return filled(DType::f32, dims, 1); };
  const Tensor shape = ints({4, 2}), index = ints({0, 1}), offsets = ints({0}), dy = floats({1, 2});
  const std::string bag = "EmbeddingBagGrad: ";
  refused("EmbeddingBagGrad", {shape, index, offsets, dy}, {{"mode", std::string("min")}}, invalid,
          bag + "attribute mode is \"min\"; it must be \"sum\", \"mean\" or \"max\"");
  refused("EmbeddingBagGrad", {shape, index, offsets, dy}, {{"padding_idx", int64_t{4}}}, invalid,
          bag + "attribute padding_idx is 4; it must be in [-4, 3] for 4 rows");
  refused("EmbeddingBagGrad", {shape, index, offsets, dy, floats({2})}, {}, invalid,
          bag + "input 4 (per_sample_weights) is given; only mode \"sum\" has weights");
  refused("EmbeddingBagGrad", {shape, index, offsets, dy, filled(DType::f64, {2}, 1)}, {{"mode", std::string("sum")}},
          invalid, bag + "input 4 (per_sample_weights) has dtype f64; it must have dY's, f32");
  refused("EmbeddingBagGrad", {shape, index, offsets, dy}, {{"mode", std::string("max")}}, invalid,
          bag + "input 5 (max_indices) is missing; mode \"max\" needs it, and no other one has it");
  refused("EmbeddingBagGrad", {shape, index, offsets, floats({2, 2})}, {}, invalid,
          bag + "input 3 (dY) has shape [2,2]; for 1 bags and 2 columns it must be [1,2]");
  refused("EmbeddingBagGrad", {shape, index, ints({}), floats({0, 2})}, {}, invalid,
          bag + "input 1 (indices) has 2 values, but offsets gives no bag");
  refused("IndexGrad", {shape, floats({2}), index, index}, {{"axes", std::vector<int64_t>{1, 0}}}, invalid,
          "IndexGrad: attribute axes has 0 after 1; axes must ascend");
  refused("IndexGrad", {shape, floats({2}), index, index}, {{"axes", std::vector<int64_t>{1}}}, invalid,
          "IndexGrad: attribute axes has 1 values for 2 indices; there must be one an input");
  refused("IndexGrad", {shape, floats({2}), index, ints({0, 1, 0})}, {}, invalid,
          "IndexGrad: input 3 (indices1) has shape [3], which does not broadcast with the indices before it, of [2]");
  refused("IndexGrad", {shape, floats({3}), index, index}, {}, invalid,
          "IndexGrad: input 1 (dY) has shape [3]; for shape [4,2] and indices that broadcast to [2] it must be [2]");
  refused("SparseGatherGrad", {shape, index, floats({2, 2})}, {}, unsupported,
          "SparseGatherGrad: accumulate; the rows are found by the call", true);
  refused("SparseGatherGrad", {shape, index, floats({2, 3})}, {}, invalid,
          "SparseGatherGrad: input 2 (dY) has shape [2,3]; for shape [4,2] and indices of shape [2] it must be [2,2]");
}

}  // namespace
}  // namespace gradloom
