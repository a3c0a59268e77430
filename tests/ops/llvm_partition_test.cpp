// The strategy "partition" compiled, at sizes with many bins and chunks: equal to plain loops for any thread count,
// instruction set and dtype; bad indices are detected, and cause no out-of-bounds writes.
#include <gtest/gtest.h>

#include "gradloom/runtime.h"
#include "ir/scalar_math.h"
#include "tests/ops/ops_harness.h"

namespace gradloom {
namespace {

using namespace testing_ops;

RuntimeOptions with(int threads, const char* isa = "host") {
  return {.target = TargetKind::llvm, .threads = threads, .isa = isa, .disk_cache = "off"};
}

// Indices spread over dX, negative ones included; every eighth is one of a few neighbours, so that bins are uneven.
std::vector<int64_t> places(int64_t count, int64_t extent, uint64_t seed) {
  std::vector<int64_t> values;
  for (int64_t i = 0; i < count; ++i) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    const int64_t j = static_cast<int64_t>(seed >> 20) % (i % 8 == 0 ? std::min<int64_t>(extent, 100) : extent);
    values.push_back(seed >> 63 ? j - extent : j);
  }
  return values;
}

std::vector<uint64_t> summed(const Tensor& dy, const std::vector<int64_t>& values, int64_t extent) {
  const DType dtype = dy.dtype(), sum = accumulator_of(dtype);
  std::vector<uint64_t> want(extent, 0);
  for (int64_t i = 0; i < dy.elements(); ++i) {
    uint64_t& place = want[values[i] < 0 ? values[i] + extent : values[i]];
    place = ir::eval_binary(ir::BinaryOp::add, sum, place, ir::eval_cast(dtype, sum, bits_at(dy, i)));
  }
  for (uint64_t& w : want) w = ir::eval_cast(sum, dtype, w);
  return want;
}

void expect_sums(int64_t extent, int64_t count, DType dtype, DType index) {
  const Tensor dy = filled(dtype, {count}, 5);
  const std::vector<int64_t> values = places(count, extent, 3);
  const std::vector<Tensor> inputs{dy, Tensor::of(DType::i64, {1}, std::vector<int64_t>{extent}),
                                   Tensor::of(index, {count}, values)};
  const std::vector<uint64_t> want = summed(dy, values, extent);
  std::vector<const char*> sets{"host", "x86-64-v2"};
  if (__builtin_cpu_supports("avx512f")) sets.push_back("x86-64-v3");
  for (const char* isa : sets)
    for (const int threads : {1, 3})
      for (const bool any_shape : {false, true}) {
        Runtime runtime(with(threads, isa));
        const auto got =
            runtime.run("GatherElementsGrad", inputs, {}, {.strategy = "partition", .any_shape = any_shape});
        ASSERT_TRUE(got.ok()) << got.error().what();
        int64_t wrong = 0;
        for (int64_t i = 0; i < extent; ++i) wrong += bits_at(got.value()[0], i) != want[i];
        EXPECT_EQ(wrong, 0) << extent << " places, " << count << " indices, " << onnx_name(dtype) << ", " << isa
                            << ", threads: " << threads << (any_shape ? ", any shape" : "");
      }
}

TEST(Partition, SumsAreThoseOfPlainLoops) {
  expect_sums(1 << 20, 1 << 19, DType::f32, DType::i64);
  expect_sums((1 << 20) + 12345, (1 << 19) + 777, DType::f32, DType::i32);
  expect_sums((1 << 19) + 1, (1 << 18) - 1, DType::f64, DType::i64);
  expect_sums((1 << 20) - 31, (1 << 17) + 65, DType::bf16, DType::i64);
  expect_sums(3 << 20, 70, DType::f32, DType::i64);
}

TEST(Partition, ABadIndexIsFoundWhereverItIs) {
  constexpr int64_t extent = (1 << 20) + 3, count = (1 << 17) + 70;
  const Tensor dy = filled(DType::f32, {count}, 5);
  Runtime runtime(with(2));
  for (const int64_t at : {int64_t{0}, int64_t{40000}, count - 1})
    for (const int64_t bad : {extent, -extent - 1, int64_t{1} << 40, std::numeric_limits<int64_t>::min()}) {
      std::vector<int64_t> values = places(count, extent, 3);
      values[at] = bad;
      const std::vector<Tensor> inputs{dy, Tensor::of(DType::i64, {1}, std::vector<int64_t>{extent}),
                                       Tensor::of(DType::i64, {count}, values)};
      const auto got = runtime.run("GatherElementsGrad", inputs, {}, {.strategy = "partition"});
      ASSERT_FALSE(got.ok());
      EXPECT_EQ(got.error().code(), ErrorCode::out_of_range);
      EXPECT_NE(std::string(got.error().what()).find("[" + std::to_string(at) + "] is " + std::to_string(bad)),
                std::string::npos)
          << got.error().what();
    }
}

}  // namespace
}  // namespace gradloom
