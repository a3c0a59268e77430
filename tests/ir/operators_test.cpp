// The operators that authors of nests write: numbers beside expressions, and what is refused, in which words.
#include <gtest/gtest.h>

#include "gradloom/builder.h"
#include "gradloom/text.h"

namespace gradloom::ir {
namespace {

struct Operators : testing::Test {
  Buffer x = buffer("x", DType::f32), d = buffer("d", DType::f64), n = buffer("n", DType::i64),
         u = buffer("u", DType::u8), h = buffer("h", DType::f16), p = buffer("p", DType::boolean);
  Var i = make_var("i");

  static Buffer buffer(const char* name, DType dtype) {
    return make_buffer({.name = name, .dtype = dtype, .dims = {8}});
  }
  Expr of(const Buffer& b) const { return load(b, {var(i)}); }
};

template <class Body>
std::string refusal(const Body& body) {
  try {
    body();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    return error.what();
  }
  return "accepted";
}

TEST_F(Operators, ANumberHasTheDTypeOfItsNeighbour) {
  EXPECT_EQ(print(of(x) * 0.5), "x[i] * 0.5f32");
  EXPECT_EQ(print(2 * of(x)), "2.0f32 * x[i]");
  EXPECT_EQ(print(of(d) / 3), "d[i] / 3.0f64");
  EXPECT_EQ(print(1.0f / of(x)), "1.0f32 / x[i]");
  EXPECT_EQ(print(of(n) + 1), "n[i] + 1");
  EXPECT_EQ(print(size_t{7} - of(n)), "7 - n[i]");
  EXPECT_EQ(print(of(u) * 255), "u[i] * 255u8");
  EXPECT_EQ(print(floor_div(of(u), 3)), "floor_div(u[i], 3u8)");
  EXPECT_EQ(print(floor_mod(of(n), int64_t{3})), "floor_mod(n[i], 3)");
  EXPECT_EQ(print(min(of(x), 0)), "min(x[i], 0.0f32)");
  EXPECT_EQ(print(max(-1.5, of(x))), "max(-1.5f32, x[i])");
  EXPECT_EQ(print(of(x) * 0.1), print(of(x) * constant(DType::f32, 0.1)));  // rounded once
}

TEST_F(Operators, ComparisonsTakeNumbers) {
  EXPECT_EQ(print(of(x) > 0), "x[i] > 0.0f32");
  EXPECT_EQ(print(0.5 <= of(x)), "0.5f32 <= x[i]");
  EXPECT_EQ(print(of(n) == 3), "n[i] == 3");
  EXPECT_EQ(print(3 != of(n)), "3 != n[i]");
  EXPECT_EQ(print(of(p) == true), "p[i] == true");
  EXPECT_EQ(print(select(of(x) > 0, of(x), 0)), "select(x[i] > 0.0f32, x[i], 0.0f32)");
  EXPECT_EQ(print(select(of(x) < 0, 0.0, of(x))), "select(x[i] < 0.0f32, 0.0f32, x[i])");
}

TEST_F(Operators, UnaryOperators) {
  EXPECT_EQ(print(-of(x)), "-x[i]");
  EXPECT_EQ(print(-(of(n) + 1)), "-(n[i] + 1)");
  const Expr positive = of(x) > 0;
  const Expr negated = !positive;
  EXPECT_EQ(print(negated), "~(x[i] > 0.0f32)");
  EXPECT_EQ(print(!positive & of(p)), "~(x[i] > 0.0f32) & p[i]");
  EXPECT_EQ(refusal([&] { (void)Expr(!of(x)); }), "ir: ! takes a bool, got f32");
  const Expr none;
  EXPECT_TRUE(!none ? true : false);  // in a condition: whether there is none
  EXPECT_FALSE(!positive ? true : false);
}

TEST_F(Operators, WhatADTypeDoesNotHaveIsRefused) {
  EXPECT_EQ(refusal([&] { of(n) * 0.5; }), "ir: i64 has no 0.5");
  EXPECT_EQ(refusal([&] { of(n) * 2.0; }), "ir: i64 has no 2");
  EXPECT_EQ(refusal([&] { of(u) + 256; }), "ir: u8 has no 256");
  EXPECT_EQ(refusal([&] { of(u) + -1; }), "ir: u8 has no -1");
  EXPECT_EQ(refusal([&] { of(n) + (~uint64_t{0}); }), "ir: i64 has no 18446744073709551615");
  EXPECT_EQ(refusal([&] { of(x) * 1e39; }), "ir: f32 has no 1e+39");
  EXPECT_EQ(refusal([&] { of(p) == 1; }), "ir: bool has no 1");
  EXPECT_EQ(refusal([&] { of(n) == true; }), "ir: i64 has no true");
  EXPECT_EQ(refusal([&] { Expr() + 1; }), "ir: an operand is absent");
}

TEST_F(Operators, UnlikeDTypesAreRefusedByBothNames) {
  EXPECT_EQ(refusal([&] { of(n) * of(x); }), "ir: mul: operands of i64 and f32");
  EXPECT_EQ(refusal([&] { of(x) / of(d); }), "ir: div: operands of f32 and f64");
  EXPECT_EQ(refusal([&] { of(n) < of(u); }), "ir: lt: operands of i64 and u8");
  EXPECT_EQ(refusal([&] { select(of(p), of(x), of(n)); }), "ir: select: operands of f32 and i64");
  EXPECT_EQ(refusal([&] { of(n) / 2; }), "ir: div takes f32 or f64 (integers: floor_div), got i64");
  EXPECT_EQ(refusal([&] { of(h) * 2; }), "ir: arithmetic takes integers, f32 or f64, got f16");
}

TEST_F(Operators, ABoolOfCppIsNoExpression) {  // a && b would be one: whether both expressions are there
  static_assert(!std::is_convertible_v<bool, Expr>);
  static_assert(std::is_convertible_v<int, Expr>);
}

TEST_F(Operators, EveryNodeIsKeptAsItIsWritten) {
  EXPECT_EQ(print(Expr(2) + 3), "2 + 3");
  EXPECT_EQ(print(of(x) + 0), "x[i] + 0.0f32");
  EXPECT_EQ(print(-(Expr(5) - 5)), "-(5 - 5)");
}

TEST_F(Operators, TheBuilderStoresNumbers) {
  KernelBuilder b("k");
  const Buffer y = b.output("y", DType::f16, {4});
  b.loop("i", 0, 4, [&](Expr i) { b.store(y, {i}, 0.5); });
  const Buffer sum = b.inout("sum", DType::f32, {});
  b.accumulate(sum, {}, 1);
  EXPECT_EQ(print(b.build()),
            "kernel k() {\n  out y: f16[4]\n  inout sum: f32[]\n  for i in 0 .. 4 {\n    y[i] = 0.5f16\n  }\n"
            "  sum[] += 1.0f32\n}\n");
}

}  // namespace
}  // namespace gradloom::ir
