// Reductions: the interpreter against plain C++ that follows stmt.h's definition, and what lowering, schedules and
// machine code make of them against the interpreter; the builder's sums.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>

#include "gradloom/builder.h"
#include "gradloom/math.h"
#include "gradloom/text.h"
#include "ir/analysis/verify.h"
#include "ir/passes/passes.h"
#include "ir/schedule/schedule_default.h"
#include "tests/support/error_of.h"
#include "tests/support/kernel_run.h"

namespace gradloom::ir::testing {
namespace {

template <class T>
using Fold = T (*)(T, T);
template <class T>
using Terms = std::function<T(int64_t)>;

// Blocks of 16 strided partials, each folded by halves; parts of 64 blocks; all in order.
template <class T>
T tree(int64_t n, int64_t block, T start, Fold<T> fold, const Terms<T>& term, bool in_parts = true) {
  T total = start, part = start;
  for (int64_t first = 0, k = 1; first < n; first += block, ++k) {
    std::vector<T> p(16, start);
    for (int64_t i = first; i < std::min(n, first + block); ++i)
      p[(i - first) % 16] = fold(p[(i - first) % 16], term(i));
    for (size_t h : {8, 4, 2, 1})
      for (size_t l = 0; l < h; ++l) p[l] = fold(p[l], p[l + h]);
    part = fold(part, p[0]);
    if (in_parts && k % 64 == 0) total = fold(total, part), part = start;
  }
  return fold(total, part);
}

float sum_of(float a, float b) { return a + b; }

std::vector<float> numbers(int64_t n) {
  std::mt19937 random(static_cast<unsigned>(n));
  std::vector<float> x(static_cast<size_t>(n));
  for (float& e : x) e = std::ldexp(static_cast<float>(random()) - 2e9f, static_cast<int>(random() % 12) - 36);
  if (n > 3) x[3] = -0.0f;
  return x;
}

template <class T>
Memory memory(const std::vector<T>& in, size_t out_bytes) {
  const auto* bytes = reinterpret_cast<const uint8_t*>(in.data());
  return {{bytes, bytes + in.size() * sizeof(T)}, std::vector<uint8_t>(out_bytes)};
}

// The kernel's out buffer on the interpreter; every other way gives the same.
std::vector<uint8_t> run_all(const Kernel& kernel, const Memory& given, const std::vector<int64_t>& scalars,
                             [[maybe_unused]] bool compiled = true) {
  verify(kernel, Stage::authored);
  EXPECT_EQ(print(parse(print(kernel))), print(kernel));
  Result expected{given};
  interpret(kernel, pointers(expected.memory), scalars);
  std::vector<Kernel> ways{kernel, with_default_schedule(kernel, {.vector_bytes = 32}),
                           with_default_schedule(kernel, {.vector_bytes = 64, .vector_registers = 32, .threads = 4})};
  for (const Kernel& way : ways) {
    verify(way, Stage::scheduled);
    const Kernel lowered = lower(way);
    verify(lowered, Stage::lowered);
    Result result{given};
    interpret(lowered, pointers(result.memory), scalars);
    EXPECT_EQ(difference(kernel, expected, result), "") << print(way);
#if GRADLOOM_WITH_LLVM
    if (!compiled) continue;
    result = {given};
    run_compiled(lowered, codegen::host_isa(), pointers(result.memory), scalars);
    EXPECT_EQ(difference(kernel, expected, result), "") << "compiled\n" << print(way);
#endif
  }
  return expected.memory[1];
}

template <class T>
T only(const std::vector<uint8_t>& bytes) {
  T value;
  std::memcpy(&value, bytes.data(), sizeof value);
  return value;
}

TEST(Reduction, ATreeIsWhatItsDefinitionSays) {
  for (const int64_t block : {16, 48, 256}) {
    KernelBuilder b("sum");
    const Expr n = b.scalar("n", 0, 1 << 20);
    const Buffer x = b.input("x", DType::f32, {n}), y = b.output("y", DType::f32, {1});
    b.store(y, {0},
            b.sum(
                "k", 0, n, [&](const Expr& k) { return load(x, {k}); }, SumOrder::in_tree(block)));
    const Kernel kernel = b.build();
    for (const int64_t length : {int64_t{0}, int64_t{15}, block + 1, 64 * block, 64 * block + 17, 150 * block}) {
      const std::vector<float> values = numbers(length);
      const float expected = tree<float>(length, block, 0, sum_of, [&](int64_t i) { return values[i]; });
      EXPECT_EQ(only<float>(run_all(kernel, memory(values, 4), {length}, length > 64 * block)), expected)
          << block << ", " << length;
    }
  }
}

TEST(Reduction, LoopsAddInOrder) {
  KernelBuilder b("sum");
  const Expr n = b.scalar("n", 0, 1 << 20);
  const Buffer x = b.input("x", DType::f32, {n}), y = b.output("y", DType::f32, {1});
  b.store(y, {0},
          b.sum(
              "k", 0, n, [&](const Expr& k) { return load(x, {k}); }, SumOrder::in_loops()));
  const std::vector<float> values = numbers(1000);
  float expected = 0;
  for (const float v : values) expected += v;
  EXPECT_EQ(only<float>(run_all(b.build(), memory(values, 4), {1000})), expected);
}

TEST(Reduction, ChunksAreAddedInOrder) {
  KernelBuilder b("sum");
  const Expr n = b.scalar("n", 0, 1 << 20);
  const Buffer x = b.input("x", DType::f32, {n, 3}), y = b.output("y", DType::f32, {1});
  b.reduce(
      y, {0}, AccumulateOp::add, {{"i", 0, n}, {"j", 0, 3}}, [&](const std::vector<Expr>& i) { return load(x, i); },
      SumOrder::in_chunks(7));
  const Kernel kernel = b.build();
  for (const int64_t length : {0, 1, 7, 8, 100}) {
    const std::vector<float> values = numbers(3 * length);
    float expected = 0;
    for (int64_t first = 0; first < length; first += 7) {
      float chunk = 0;
      for (int64_t i = 3 * first; i < 3 * std::min(length, first + 7); ++i) chunk += values[static_cast<size_t>(i)];
      expected += chunk;
    }
    EXPECT_EQ(only<float>(run_all(kernel, memory(values, 4), {length})), expected) << length;
  }
}

// Of several variables the totals of the inner ones are the terms of the outer one, in blocks of 16 without parts.
TEST(Reduction, TotalsAreTermsOfTheOuterVariable) {
  KernelBuilder b("sums");
  const Expr n = b.scalar("n", 0, 4096), m = b.scalar("m", 0, 4096);
  const Buffer x = b.input("x", DType::f32, {n, m}), y = b.output("y", DType::f32, {1});
  b.reduce(
      y, {0}, AccumulateOp::add, {{"i", 0, n}, {"j", 1, m - 1}}, [&](const std::vector<Expr>& i) { return load(x, i); },
      SumOrder::in_tree(32));
  const Kernel kernel = b.build();
  for (const auto& [rows, columns] : {std::pair{1100, 3}, {17, 40}, {2, 2100}, {0, 5}, {5, 1}}) {
    const std::vector<float> values = numbers(int64_t{rows} * columns);
    const float expected = tree<float>(
        rows, 16, 0, sum_of,
        [&](int64_t i) {
          return tree<float>(columns - 1, 32, 0, sum_of,
                             [&](int64_t j) { return values[static_cast<size_t>(i * columns + j + 1)]; });
        },
        false);
    EXPECT_EQ(only<float>(run_all(kernel, memory(values, 4), {rows, columns})), expected) << rows << ", " << columns;
  }
}

// A partial of products may be -0.0, which a term of 0 would change.
TEST(Reduction, MissingTermsOfProductsAreNone) {
  KernelBuilder b("dot");
  const Expr n = b.scalar("n", 0, 4096);
  const Buffer x = b.input("x", DType::f32, {n}), y = b.output("y", DType::f32, {1});
  const auto at = [&](const Expr& k) { return load(x, {k}); };
  b.store(y, {0}, 1.0f / b.dot("k", 0, n, at, [&](const Expr& k) { return load(x, {n - 1 - k}); }));
  std::vector<float> values(2, 1e-30f);
  values[0] = -1e-30f;
  EXPECT_EQ(only<float>(run_all(b.build(), memory(values, 4), {2})), std::numeric_limits<float>::infinity());
}

TEST(Reduction, EveryOpAndDtype) {
  for (const DType t :
       {DType::f32, DType::f64, DType::i8, DType::u8, DType::i16, DType::i32, DType::u32, DType::i64, DType::u64})
    for (const bool least : {false, true}) {
      KernelBuilder b("extremes");
      const Expr n = b.scalar("n", 0, 4096);
      const Buffer x = b.input("x", t, {n}), y = b.output("y", t, {3});
      const auto at = [&](const Expr& k) { return load(x, {k}); };
      b.store(y, {0}, least ? b.min("k", 0, n, at) : b.max("k", 0, n, at));
      b.store(y, {1}, b.sum("k", 0, n, at));
      b.store(y, {2}, b.sum("k", 0, n, at, SumOrder::in_loops()));
      const Kernel kernel = b.build();
      for (const int64_t length : {0, 1, 300}) {
        std::mt19937_64 random(7);
        std::vector<uint8_t> bytes(static_cast<size_t>(length) * size_of(t));
        for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random());
        const std::vector<uint8_t> result = run_all(kernel, memory(bytes, 3 * size_of(t)), {length}, length > 1);
        if (!is_int(t)) continue;
        EXPECT_TRUE(
            std::equal(result.begin() + size_of(t), result.begin() + 2 * size_of(t), result.begin() + 2 * size_of(t)));
      }
    }
}

TEST(Reduction, TermsMayUseLets) {
  KernelBuilder b("logsumexp");
  const Expr n = b.scalar("n", 1, 4096), m = b.scalar("m", 1, 4096);
  const Buffer x = b.input("x", DType::f32, {n, m}), y = b.output("y", DType::f32, {n});
  b.loop("i", 0, n, [&](const Expr& i) {
    const Expr most = b.max("k", 0, m, [&](const Expr& k) { return load(x, {i, k}); });
    const Expr sum = b.sum("k", 0, m, [&](const Expr& k) { return exp(b, load(x, {i, k}) - most); });
    b.store(y, {i}, most + log(b, sum));
  });
  const std::vector<float> values(600, 2.0f);
  const std::vector<uint8_t> result = run_all(b.build(), memory(values, 8), {2, 300});
  EXPECT_NEAR(only<float>(result), 2 + std::log(300.0f), 1e-5f);
}

TEST(Reduction, WhatTheBuilderRefuses) {
  KernelBuilder b("k");
  const Buffer x = b.input("x", DType::f16, {8}), t = b.alloc("t", DType::f32, {1});
  const auto at = [&](const Expr& k) { return load(x, {k}); };
  EXPECT_EQ(error_of([&] { b.sum("k", 0, 8, at); }),
            "ir: a reduction into f16 or bf16 is illegal: use an f32 temporary");
  EXPECT_EQ(error_of([&] {
              b.sum("k", 0, 8, [&](const Expr& k) { return b.sum("l", 0, k, [](const Expr& l) { return l; }); });
            }),
            "KernelBuilder: the terms of a reduction may use lets, but no other statements; one over several variables "
            "is one reduce");
  EXPECT_EQ(error_of([&] { b.reduce(t, {0}, AccumulateOp::add, {}, [&](const auto&) { return load(t, {0}); }); }),
            "ir: a reduction needs a variable");
  EXPECT_EQ(error_of([&] {
              b.sum(
                  "k", 0, 8, [](const Expr& k) { return k; }, SumOrder::in_tree(20));
            }),
            "ir: a tree's block is a multiple of 16 up to 4096, got 20");
}

}  // namespace
}  // namespace gradloom::ir::testing
