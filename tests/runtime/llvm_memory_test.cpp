// Memory while kernels are compiled and evicted repeatedly: `gradloom bench churn` shows the same over 100,000 cycles.
#include <gtest/gtest.h>

#include <cinttypes>
#include <cstdio>
#include <fstream>
#include <string>

#include "cli/bench/live_heap.h"
#include "gradloom/runtime.h"

namespace gradloom {
namespace {

// One of 61 small kernels, of which only a few fit the cache: each call compiles.
void call(Runtime& runtime, int64_t number) {
  const std::vector<int64_t> length{10 + number % 61}, first{0}, end{1};
  const std::vector<Tensor> inputs{Tensor::of(DType::f32, {1}, std::vector<float>{0.5f}),
                                   Tensor::of(DType::i64, {1}, length), Tensor::of(DType::i64, {1}, first),
                                   Tensor::of(DType::i64, {1}, end)};
  runtime.run("SliceGrad", inputs).value();
}

// Executable anonymous mappings.
int64_t code_bytes() {
  std::ifstream maps("/proc/self/maps");
  int64_t bytes = 0;
  for (std::string line; std::getline(maps, line);) {
    uint64_t begin = 0, end = 0, inode = 0;
    char permissions[5] = {};
    if (std::sscanf(line.c_str(), "%" SCNx64 "-%" SCNx64 " %4s %*s %*s %" SCNu64, &begin, &end, permissions, &inode) !=
        4)
      continue;
    if (permissions[2] == 'x' && inode == 0) bytes += static_cast<int64_t>(end - begin);
  }
  return bytes;
}

TEST(Memory, IsFlatOverCyclesOfCompileAndEvict) {
  Runtime runtime({.threads = 1, .cache_bytes = 64 << 10, .disk_cache = "off"});
  constexpr int64_t settled = 150, cycles = 500;
  int64_t done = 0, heap = 0, code = 0;
  for (; done < settled; ++done) call(runtime, done);
  heap = cli::live_heap_bytes();
  code = code_bytes();
  if (heap == 0) GTEST_SKIP() << "another allocator took the C library's place";
  for (; done < cycles; ++done) call(runtime, done);
  const Stats stats = runtime.stats();
  EXPECT_EQ(stats.compiles, cycles);
  EXPECT_GT(stats.evictions, cycles - 30);
  EXPECT_LT(cli::live_heap_bytes() - heap, 16 << 10);  // 46 bytes a cycle
  EXPECT_GT(code, 0);
  EXPECT_LE(code_bytes() - code, 64 << 10);
}

TEST(Memory, TheListOfUsedCallsEnds) {
  Runtime runtime({.target = TargetKind::interpreter, .threads = 1, .cache_bytes = 64 << 10});
  for (int64_t n = 1; n <= 10100; ++n) {
    const std::vector<int64_t> dims{1 + n % 101, 1 + n % 103};
    runtime
        .run("SliceGrad", std::vector<Tensor>{Tensor::of(DType::f32, {1, 1}, std::vector<float>{0.5f}),
                                              Tensor::of(DType::i64, {2}, dims),
                                              Tensor::of(DType::i64, {2}, std::vector<int64_t>{0, 0}),
                                              Tensor::of(DType::i64, {2}, std::vector<int64_t>{1, 1})})
        .value();
  }
  EXPECT_EQ(runtime.used_calls().size(), 10000u);
}

}  // namespace
}  // namespace gradloom
