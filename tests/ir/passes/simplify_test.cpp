#include <gtest/gtest.h>

#include <cstring>

#include "ir/analysis/verify.h"
#include "ir/interpret/interpret.h"
#include "ir/passes/passes.h"
#include "ir/text/print.h"

namespace gradloom::ir {
namespace {

const std::string head =
    "kernel k(n: i64 in [0, 40], m: i64 in [1, 8]) {\n  in x: f32[64]\n  in idx: i64[64] in [0, 63]\n  inout y: "
    "f32[64]\n  inout s: i64[64]\n";

// Runs a kernel of `head` on fixed data; the bits of y and s.
std::vector<uint8_t> run(const Kernel& kernel, int64_t n, int64_t m) {
  std::vector<float> x(64), y(64);
  std::vector<int64_t> idx(64), s(64);
  for (int i = 0; i < 64; ++i) x[i] = static_cast<float>(i % 7) - 3.0f, y[i] = -0.0f, idx[i] = (i * 37) % 64, s[i] = i;
  x[5] = -0.0f;
  void* buffers[] = {x.data(), idx.data(), y.data(), s.data()};
  const int64_t scalars[] = {n, m};
  EXPECT_TRUE(interpret(kernel, buffers, scalars).ok());
  std::vector<uint8_t> bits(64 * 12);
  std::memcpy(bits.data(), y.data(), 256);
  std::memcpy(bits.data() + 256, s.data(), 512);
  return bits;
}

void expect_simplified(const std::string& before, const std::string& after) {
  const Kernel kernel = parse(head + before + "}\n");
  const Kernel simple = simplify(kernel);
  EXPECT_EQ(print(simple), print(parse(head + after + "}\n")));
  for (const auto& [n, m] : {std::pair<int64_t, int64_t>{0, 1}, {33, 3}, {40, 8}})
    EXPECT_EQ(run(kernel, n, m), run(simple, n, m)) << before;
  EXPECT_TRUE(simplify(simple).body.same_as(simple.body)) << "not settled: " << print(simple);
}

TEST(Simplify, Constants) {
  expect_simplified("s[0] = 3 + 4 * 5\n", "s[0] = 23\n");
  expect_simplified("s[0] = floor_div(-7, 2) + floor_mod(-7, 2)\n", "s[0] = -3\n");
  expect_simplified("y[0] = 0.1f32 + 0.2f32\n", "y[0] = 0.3f32\n");
  expect_simplified("s[0] = i64(i32(4294967297))\n", "s[0] = 1\n");
}

TEST(Simplify, IntegerIdentities) {
  expect_simplified("s[0] = (n + 0) * 1 + m * 0\n", "s[0] = n\n");
  expect_simplified("s[0] = (n + m) - n\n", "s[0] = m\n");
  expect_simplified("s[0] = (n * 4 + 3) * 2 - 6\n", "s[0] = n * 8\n");
  expect_simplified("s[0] = n * 4 + m\n", "s[0] = n * 4 + m\n");
  expect_simplified("s[0] = (n ^ 0) | 0\n", "s[0] = n\n");
}

TEST(Simplify, WhatADivisorDividesLeavesTheDivision) {
  expect_simplified("s[0] = floor_div(n * 256 + m, 16)\n", "s[0] = n * 16\n");
  expect_simplified("s[0] = floor_div(n * 256 + m * 5, 16)\n", "s[0] = n * 16 + floor_div(m * 5, 16)\n");
  expect_simplified("s[0] = floor_mod(n * 256 + m * 5 - 3, 16)\n", "s[0] = floor_mod(m * 5 + 13, 16)\n");
  expect_simplified("s[0] = floor_div(n * 24 + m * 5, 16)\n", "s[0] = floor_div(n * 24 + m * 5, 16)\n");
}

TEST(Simplify, LanesWithinOneMultipleAreDividedOnce) {
  const auto lanes = [](const std::string& value) { return "s[ramp(0, 1, 4)] = " + value + "\n"; };
  const auto stays = [&](const std::string& value) { expect_simplified(lanes(value), lanes(value)); };
  expect_simplified(lanes("floor_div(ramp(n * 4, 1, 4), broadcast(16, 4))"), lanes("broadcast(floor_div(n, 4), 4)"));
  expect_simplified(lanes("floor_mod(ramp(n * 4, 1, 4), broadcast(16, 4))"), lanes("ramp(floor_mod(n, 4) * 4, 1, 4)"));
  expect_simplified(lanes("floor_div(ramp(n * 8 + 1, 2, 4), broadcast(24, 4))"),
                    lanes("broadcast(floor_div(n, 3), 4)"));
  expect_simplified(lanes("floor_mod(ramp(n * 4 + 3, -1, 4), broadcast(12, 4))"),
                    lanes("ramp(floor_mod(n, 3) * 4 + 3, -1, 4)"));
  expect_simplified(lanes("floor_div(ramp(m * 16 + n * 4 + 16, 1, 4), broadcast(16, 4))"),
                    lanes("broadcast(m + floor_div(n, 4) + 1, 4)"));
  expect_simplified(lanes("ramp(n * 4, 1, 4) + floor_div(ramp(n * 4, 1, 4), broadcast(16, 4)) * broadcast(8, 4)"),
                    lanes("ramp(n * 4 + floor_div(n, 4) * 8, 1, 4)"));
  stays("floor_div(ramp(n * 4 + 1, 1, 4), broadcast(16, 4))");
  stays("floor_div(ramp(n * 4, 2, 4), broadcast(16, 4))");
  stays("floor_mod(ramp(n * 6, 1, 4), broadcast(16, 4))");     // 2 is shared
  stays("floor_div(ramp(s[1] * 4, 1, 4), broadcast(16, 4))");  // may wrap
  expect_simplified(lanes("floor_div(ramp(idx[0] * 4, 1, 4), broadcast(16, 4))"),
                    lanes("broadcast(floor_div(idx[0], 4), 4)"));
  // Another term than the lanes may be left, as long as all stays below the factor.
  const auto with_j = [&](int extent, const std::string& value) {
    return "for j in 0 .. " + std::to_string(extent) + " {\n " + lanes(value) + " }\n";
  };
  expect_simplified(with_j(5, "floor_div(ramp(n * 8 + j, 1, 4), broadcast(16, 4))"),
                    with_j(5, "broadcast(floor_div(n, 2), 4)"));
  expect_simplified(with_j(6, "floor_div(ramp(n * 8 + j, 1, 4), broadcast(16, 4))"),
                    with_j(6, "floor_div(ramp(n * 8 + j, 1, 4), broadcast(16, 4))"));
  expect_simplified(with_j(5, "floor_mod(ramp(n * 8 - j + 4, 1, 4), broadcast(24, 4))"),
                    with_j(5, "ramp(floor_mod(n, 3) * 8 - j + 4, 1, 4)"));
  expect_simplified(with_j(5, "floor_div(ramp(n * 8 - j, 1, 4), broadcast(16, 4))"),
                    with_j(5, "floor_div(ramp(n * 8 - j, 1, 4), broadcast(16, 4))"));
  expect_simplified("s[0] = floor_div(n * 4 + 3, 16)\n", "s[0] = floor_div(n * 4 + 3, 16)\n");
  // A quotient and a remainder of the same lanes still belong together: the loop is proved.
  const std::string both =
      "for i in 0 .. 12 parallel {\n s[floor_div(ramp(i * 4, 1, 4), broadcast(16, 4)) * broadcast(16, 4) + "
      "floor_mod(ramp(i * 4, 1, 4), "
      "broadcast(16, 4))] = broadcast(i, 4)\n }\n";
  EXPECT_NO_THROW(verify(simplify(parse(head + both + "}\n")), Stage::scheduled));
}

TEST(Simplify, FloatsKeepSignedZerosAndNans) {
  expect_simplified("y[0] = x[0] * 1.0f32\n", "y[0] = x[0]\n");
  expect_simplified("y[0] = x[5] + 0.0f32\n", "y[0] = x[5] + 0.0f32\n");
  expect_simplified("y[0] = x[5] + -0.0f32\n", "y[0] = x[5]\n");
  expect_simplified("y[0] = x[5] - 0.0f32\n", "y[0] = x[5]\n");
  expect_simplified("y[0] = x[0] * 0.0f32\n", "y[0] = x[0] * 0.0f32\n");
  expect_simplified("y[0] = x[0] - x[0]\n", "y[0] = x[0] - x[0]\n");
}

TEST(Simplify, Divisions) {
  expect_simplified(
      "for i in 0 .. 4 {\n for j in 0 .. 8 {\n s[floor_div(i * 8 + j, 8)] = floor_mod(i * 8 + j, 8)\n }\n }\n",
      "for i in 0 .. 4 {\n for j in 0 .. 8 {\n s[i] = j\n }\n }\n");
  expect_simplified("for j in 0 .. 9 {\n s[j] = floor_div(j, 8)\n }\n",
                    "for j in 0 .. 9 {\n s[j] = floor_div(j, 8)\n }\n");
  expect_simplified("s[0] = floor_div(n * 6 + 5, 3)\n", "s[0] = n * 2 + 1\n");
  expect_simplified("s[0] = floor_div(n, 1) + floor_mod(n, 1)\n", "s[0] = n\n");
}

TEST(Simplify, ProvedConditions) {
  expect_simplified("for i in 0 .. n {\n if i < n & i >= 0 {\n s[i] = min(i, n)\n }\n }\n",
                    "for i in 0 .. n {\n s[i] = i\n }\n");
  expect_simplified("for i in 0 .. n {\n if i >= n {\n s[i] = 1\n } else {\n s[i] = 2\n }\n }\n",
                    "for i in 0 .. n {\n s[i] = 2\n }\n");
  expect_simplified("for i in 0 .. 40 {\n if i < n {\n s[i] = select(i <= n, 1, 2)\n }\n }\n",
                    "for i in 0 .. 40 {\n if i < n {\n s[i] = 1\n }\n }\n");
  expect_simplified("for i in 0 .. 40 {\n if i < n {\n s[i] = 1\n } else {\n s[i] = select(i >= n, 3, 4)\n }\n }\n",
                    "for i in 0 .. 40 {\n if i < n {\n s[i] = 1\n } else {\n s[i] = 3\n }\n }\n");
  expect_simplified("if n < m {\n }\n", "");
}

TEST(Simplify, GuardsAndChecks) {
  expect_simplified(
      "for i in 0 .. n {\n s[i] = 1 where i < n\n s[i] += 1 where n < i\n y[i] = x[i where i < n else 0.5f32]\n }\n",
      "for i in 0 .. n {\n s[i] = 1\n y[i] = x[i]\n }\n");
  expect_simplified(
      "for i in 0 .. 40 {\n let j: i64 = idx[i]\n check j >= 0 & j < 64 at i \"idx\" {\n s[j] = i\n s[j] += 1\n }\n "
      "}\n",
      "for i in 0 .. 40 {\n let j: i64 = idx[i]\n s[j] = i\n s[j] += 1\n }\n");
  expect_simplified(
      "for i in 0 .. 40 {\n let j: i64 = idx[i]\n check j < 64 + m - 1 at i \"idx\" {\n }\n check s[i] < 64 at i \"s\" "
      "{\n }\n }\n",
      "for i in 0 .. 40 {\n check s[i] < 64 at i \"s\" {\n }\n }\n");
}

TEST(Simplify, Loops) {
  expect_simplified("for i in 0 .. 0 {\n s[i] = 1\n }\n", "");
  expect_simplified("for i in 0 .. 1 {\n s[i + 2] = i\n }\n", "s[2] = 0\n");
  expect_simplified("for i in n .. +1 {\n s[i] = i + 1\n }\n", "s[n] = n + 1\n");
  expect_simplified("for i in 0 .. n {\n for j in i .. +m {\n }\n }\n", "");
}

TEST(Simplify, LetsAndAllocs) {
  expect_simplified("let a: i64 = 3\n let b: i64 = a + 1\n s[b] = a\n", "s[4] = 3\n");
  expect_simplified("let a: i64 = n * m\n s[0] = a\n", "s[0] = n * m\n");
  expect_simplified("let a: i64 = n * m\n s[0] = a\n s[1] = a\n", "let a: i64 = n * m\n s[0] = a\n s[1] = a\n");
  expect_simplified("let a: i64 = n * m\n for i in 0 .. n {\n s[i] = a\n }\n",
                    "let a: i64 = n * m\n for i in 0 .. n {\n s[i] = a\n }\n");
  expect_simplified("let a: i64 = s[1]\n s[1] = 5\n s[0] = a\n",
                    "let a: i64 = s[1]\n s[1] = 5\n s[0] = a\n");  // a load stays where it was
  expect_simplified("let a: i64 = idx[3]\n let b: i64 = a + 1\n alloc t: f32[8]\n s[0] = 1\n", "s[0] = 1\n");
}

TEST(Simplify, Vectors) {
  expect_simplified(
      "for i in 0 .. 4 {\n y[ramp(i * 8, 1, 8) + broadcast(2, 8)] = broadcast(1.0f32, 8) where ramp(i * 8, 1, 8) < "
      "broadcast(32, 8)\n }\n",
      "for i in 0 .. 4 {\n y[ramp(i * 8 + 2, 1, 8)] = broadcast(1.0f32, 8)\n }\n");
}

}  // namespace
}  // namespace gradloom::ir
