// Pools of an embedder's, for a runtime and for one call: the results' bits do not depend on them.
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <random>
#include <thread>

#include "gradloom/runtime.h"

namespace gradloom {
namespace {

using Iterations = std::function<void(int64_t begin, int64_t end)>;

// Large enough for threads, with values whose sums show their order.
std::vector<Tensor> large_call() {
  const int64_t rows = 6000, columns = 256;
  std::mt19937 random(1);
  std::vector<int64_t> indices(rows);
  for (int64_t& index : indices) index = static_cast<int64_t>(random() % 40);
  std::vector<float> values(rows * columns);
  for (float& value : values) value = static_cast<float>(random()) * 1e-9f - 1;
  return {Tensor::of<int64_t>(DType::i64, {2}, {40, columns}), Tensor::of(DType::i64, {rows}, indices),
          Tensor::of(DType::f32, {rows, columns}, values)};
}

bool same_bits(const Tensor& a, const Tensor& b) {
  return a.elements() == b.elements() && std::memcmp(a.data(), b.data(), a.elements() * sizeof(float)) == 0;
}

TEST(Pool, BitsDoNotDependOnIt) {
  const std::vector<Tensor> inputs = large_call();
  const Tensor expected = Runtime({.threads = 1}).run("GatherGrad", inputs).value()[0];
  Runtime runtime({.threads = 4});
  std::atomic<int64_t> loops{0};
  const ParallelFor each_backwards = [&](int64_t n, const Iterations& fn) {
    ++loops;
    for (int64_t i = n; i-- > 0;) fn(i, i + 1);
  };
  const ParallelFor threads = [&](int64_t n, const Iterations& fn) {
    ++loops;
    std::vector<std::thread> workers;
    for (int64_t w = 0; w < 3; ++w) workers.emplace_back([&, w] { fn(n * w / 3, n * (w + 1) / 3); });
    for (std::thread& worker : workers) worker.join();
  };
  const ParallelFor whole = [&](int64_t n, const Iterations& fn) {
    ++loops;
    fn(0, n);
    fn(n, n);  // an empty part
  };
  const PreparedOp prepared = runtime.prepare("GatherGrad").value();
  const Executable handle = runtime.compile("GatherGrad", inputs).value();
  for (const ParallelFor& pool : {ParallelFor(), each_backwards, threads, whole}) {
    const int64_t before = loops;
    RunOptions options;
    options.launch.parallel_for = pool;
    EXPECT_TRUE(same_bits(runtime.run("GatherGrad", inputs, {}, options).value()[0], expected));
    EXPECT_TRUE(same_bits(prepared.run(inputs, options.launch).value()[0], expected));
    const Tensor output = Tensor::empty(DType::f32, {40, 256});
    ASSERT_TRUE(handle(inputs, std::vector{output}, options.launch).ok());
    EXPECT_TRUE(same_bits(output, expected));
    if (pool) {
      EXPECT_GE(loops - before, 3);
      // As the runtime's own, too.
      EXPECT_TRUE(
          same_bits(Runtime({.threads = 4, .parallel_for = pool}).run("GatherGrad", inputs).value()[0], expected));
    } else {
      EXPECT_EQ(loops, before);
    }
  }
}

TEST(Pool, ThatDoesNotRunEachIterationOnceIsRefused) {
  const std::vector<Tensor> inputs = large_call();
  Runtime runtime({.threads = 4});
  const auto error_of = [&](ParallelFor pool) {
    RunOptions options;
    options.launch.parallel_for = std::move(pool);
    const auto result = runtime.run("GatherGrad", inputs, {}, options);
    return result.ok() ? std::string("none")
                       : std::string(to_string(result.error().code())) + " " + result.error().what();
  };
  EXPECT_NE(error_of([](int64_t, const Iterations&) {}).find("invalid_argument GatherGrad: parallel_for ran 0 "),
            std::string::npos);
  EXPECT_NE(error_of([](int64_t n, const Iterations& fn) { fn(0, n), fn(0, n + 1); }).find("beyond"),
            std::string::npos);
  EXPECT_NE(error_of([](int64_t, const Iterations&) { throw std::runtime_error("no threads"); }).find("no threads"),
            std::string::npos);
  EXPECT_EQ(error_of({}), "none");
}

}  // namespace
}  // namespace gradloom
