// The three levels of determinism of GPU kernels: the strategy chosen at each, the level reported, and the results.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "gradloom/runtime.h"
#include "ir/interpret/interpret.h"
#include "tests/support/named_strategy.h"

namespace gradloom {
namespace {

const ir::Target gpu{.name = "gpu", .vector_bytes = 16, .gpu = true, .multiprocessors = 132, .shared_bytes = 227 << 10};

struct ScatterCall {
  const char* op;
  std::vector<Tensor> inputs;
  Dims output;
};

// Most indices name the same row, so that its group is long.
Tensor indices_of(int64_t count, int64_t rows) {
  std::vector<int64_t> values;
  for (int64_t i = 0; i < count; ++i) values.push_back(i % 5 == 0 ? i * 7 % rows : 3 - rows);
  return Tensor::of(DType::i64, {count}, values);
}
template <class T>
Tensor values_of(DType dtype, const Dims& dims) {
  std::vector<T> values(static_cast<size_t>(element_count(dims)));
  uint32_t state = 1;
  for (T& v : values) v = static_cast<T>(static_cast<int32_t>(state = state * 1664525 + 1013904223)) / 3;
  return Tensor::of(dtype, dims, values);
}
template <class T>
ScatterCall rows_call(DType dtype, int64_t rows, int64_t count, int64_t width) {
  return {"GatherGrad",
          {Tensor::of(DType::i64, {2}, std::vector<int64_t>{rows, width}), indices_of(count, rows),
           values_of<T>(dtype, {count, width})},
          {rows, width}};
}
template <class T>
ScatterCall flat_call(DType dtype, int64_t size, int64_t count) {
  return {
      "GatherElementsGrad",
      {values_of<T>(dtype, {count}), Tensor::of(DType::i64, {1}, std::vector<int64_t>{size}), indices_of(count, size)},
      {size}};
}

template <class T>
std::vector<T> computed(const ScatterCall& c, Determinism level, const std::string& wanted, Determinism reported,
                        bool reverse = false) {
  const Op& op = *find_op(c.op);
  const Operands operands(op.schema(), c.inputs);
  const Attributes attributes;
  const Plan plan = op.check(operands.request(attributes, ~0u, false, level));
  const std::string strategy = chosen_strategy(op, plan, gpu);
  EXPECT_EQ(strategy, wanted);
  EXPECT_EQ(level_of(op, strategy), reported);
  const BuiltKernel built = build_kernel(op, plan, strategy, gpu, false, 64, false);
  std::vector<T> out(static_cast<size_t>(element_count(c.output)));
  std::vector<void*> buffers;
  for (const View& view : plan.views)
    buffers.push_back(view.output ? static_cast<void*>(out.data())
                                  : const_cast<void*>(static_cast<const void*>(c.inputs[view.index].data())));
  EXPECT_TRUE(ir::interpret(built.lowered, buffers, {}, {.explicit_barriers = true, .reverse_parallel = reverse}).ok());
  return out;
}

template <class T>
bool same(const std::vector<T>& a, const std::vector<T>& b) {
  return std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}
template <class T>
double distance(const std::vector<T>& a, const std::vector<T>& b) {
  double most = 0, largest = 0;
  for (size_t i = 0; i < a.size(); ++i)
    most = std::max(most, std::abs(static_cast<double>(a[i]) - b[i])),
    largest = std::max(largest, std::abs(static_cast<double>(a[i])));
  return most / largest;
}

template <class T>
void levels(const ScatterCall& c, double tolerance) {
  const auto sequential = computed<T>(c, Determinism::sequential, "sorted", Determinism::sequential);
  const auto chunked = computed<T>(c, Determinism::run_to_run, "chunked", Determinism::run_to_run);
  EXPECT_TRUE(same(chunked, computed<T>(c, Determinism::run_to_run, "chunked", Determinism::run_to_run, true)));
  EXPECT_LE(distance(sequential, chunked), tolerance);
  EXPECT_FALSE(same(sequential, chunked)) << "a long group is summed in another order";
  const auto atomic = computed<T>(c, Determinism::relaxed, "atomic", Determinism::relaxed, true);
  EXPECT_LE(distance(sequential, atomic), tolerance);
  EXPECT_FALSE(same(sequential, atomic)) << "backwards, atomic adds come in another order";
}

TEST(Determinism, RowsOfF32) { levels<float>(rows_call<float>(DType::f32, 40, 700, 20), 1e-5); }
TEST(Determinism, OddRowsOfF64) { levels<double>(rows_call<double>(DType::f64, 40, 700, 37), 1e-14); }
TEST(Determinism, FlatF32) { levels<float>(flat_call<float>(DType::f32, 5000, 900), 1e-5); }

// Groups of up to 64 are summed in order at every level but relaxed.
TEST(Determinism, ShortGroupsAreInOrder) {
  const ScatterCall c = rows_call<float>(DType::f32, 40, 60, 20);
  EXPECT_TRUE(same(computed<float>(c, Determinism::sequential, "sorted", Determinism::sequential),
                   computed<float>(c, Determinism::run_to_run, "chunked", Determinism::run_to_run)));
}

// Sums that fit in shared memory stay in order: another order gains nothing.
TEST(Determinism, StripsAreInOrderAtEveryLevel) {
  const Op& op = *find_op("GatherElementsGrad");
  const std::vector<Tensor> inputs{values_of<float>(DType::f32, {64, 64}),
                                   Tensor::of(DType::i64, {2}, std::vector<int64_t>{64, 64}),
                                   Tensor::empty(DType::i64, {64, 64})};
  const Operands operands(op.schema(), inputs);
  const Attributes attributes;
  EXPECT_EQ(chosen_strategy(op, op.check(operands.request(attributes, ~0u, false, Determinism::relaxed)), gpu),
            "block");
}

// The level reported is never weaker than the one requested.
TEST(Determinism, TheRuntimeReportsTheLevel) {
  const ScatterCall c = rows_call<float>(DType::f32, 40, 700, 20);
  Runtime cpu({.target = TargetKind::interpreter});
  RunOptions relaxed;
  relaxed.determinism = Determinism::relaxed;
  const std::vector<Tensor> want = cpu.run(c.op, c.inputs).value();
  ASSERT_TRUE(cpu.run(c.op, c.inputs, {}, relaxed));
  EXPECT_EQ(cpu.last_report().determinism, Determinism::sequential);
#ifdef GRADLOOM_WITH_CUDA
  Runtime host({.target = TargetKind::cuda_host});
  const auto got = host.run(c.op, c.inputs, {}, relaxed);
  ASSERT_TRUE(got) << got.error().what();
  EXPECT_EQ(host.last_report().strategy, "atomic");
  EXPECT_EQ(host.last_report().determinism, Determinism::relaxed);
  const auto* a = static_cast<const float*>(want[0].data());
  const auto* b = static_cast<const float*>(got.value()[0].data());
  EXPECT_LE(distance(std::vector<float>(a, a + 800), std::vector<float>(b, b + 800)), 1e-5);
  // Without a request, each target has its default level.
  ASSERT_TRUE(host.run(c.op, c.inputs));
  EXPECT_EQ(host.last_report().strategy, "chunked");
  EXPECT_EQ(host.last_report().determinism, Determinism::run_to_run);
  const auto strict = host.run(c.op, c.inputs, {}, {.determinism = Determinism::sequential});
  ASSERT_TRUE(strict);
  EXPECT_EQ(host.last_report().determinism, Determinism::sequential);
  EXPECT_EQ(std::memcmp(want[0].data(), strict.value()[0].data(), 800 * sizeof(float)), 0);
  ASSERT_TRUE(cpu.run(c.op, c.inputs));
  EXPECT_EQ(cpu.last_report().determinism, Determinism::sequential);
  const auto refused = host.run(c.op, c.inputs, {}, {.strategy = "atomic"});
  ASSERT_FALSE(refused);
  EXPECT_NE(std::string(refused.error().what()).find("strategy \"atomic\" does not serve this call"), std::string::npos)
      << refused.error().what();
#endif
}

}  // namespace
}  // namespace gradloom
