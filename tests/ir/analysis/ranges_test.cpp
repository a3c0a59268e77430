#include "ir/analysis/ranges.h"

#include <gtest/gtest.h>

#include "gradloom/builder.h"

namespace gradloom::ir {
namespace {

Var index_var(const char* name) { return make_var(name); }
Expr exact_range(Ranges& r, const char* name, int64_t min, int64_t max) {
  Var v = make_var(name);
  r.set(v.id, {min, max});
  return var(v);
}
For loop_of(const Var& v, Expr begin, Expr extent) { return {v, begin, extent, ForKind::serial, block({})}; }
Buffer in_buffer(const char* name, DType dtype, Facts facts = {}) {
  return make_buffer({.name = name, .dtype = dtype, .dims = {Expr(100)}, .role = Role::in, .facts = facts});
}

void expect_range(const Range& r, std::optional<int64_t> min, std::optional<int64_t> max) {
  EXPECT_EQ(r.min, min);
  EXPECT_EQ(r.max, max);
}

TEST(Ranges, Intervals) {
  Ranges r;
  Expr x = exact_range(r, "x", -3, 10), y = exact_range(r, "y", 2, 5);
  expect_range(r.of(x + y), -1, 15);
  expect_range(r.of(x - y), -8, 8);
  expect_range(r.of(x - x), 0, 0);
  expect_range(r.of((x + y) - x), 2, 5);
  expect_range(r.of(x * y), -15, 50);
  expect_range(r.of(floor_div(x, Expr(4))), -1, 2);
  expect_range(r.of(floor_mod(x, Expr(4))), 0, 3);
  expect_range(r.of(floor_mod(y, Expr(8))), 2, 5);
  expect_range(r.of(floor_mod(y + 8, Expr(8))), 2, 5);
  expect_range(r.of(min(x, y)), -3, 5);
  expect_range(r.of(max(x, y)), 2, 10);
  expect_range(r.of(select(x < y, x, y)), -3, 10);
  expect_range(r.of(ramp(x, Expr(2), 4)), -3, 16);
  expect_range(r.of(cast(DType::i32, x)), -3, 10);
  expect_range(r.of(cast(DType::u8, x)), 0, 255);  // wraps
}

TEST(Ranges, OverflowIsUnbounded) {
  Ranges r;
  Expr x = exact_range(r, "x", 0, INT64_MAX);
  expect_range(r.of(x + 1), {}, {});
  expect_range(r.of(x * Expr(2)), {}, {});
  expect_range(r.of(x - 1), -1, INT64_MAX - 1);
  Var i = make_var("i", {DType::i32, 1});
  r.set(i.id, {0, INT32_MAX});
  expect_range(r.of(var(i) + constant_int(DType::i32, 1)), INT32_MIN, INT32_MAX);
}

TEST(Ranges, LoopsLetsAndFacts) {
  Ranges r;
  Var i = index_var("i"), k = index_var("k"), t = index_var("t");
  r.enter(loop_of(i, Expr(2), Expr(8)));
  expect_range(r.of(var(i)), 2, 9);
  r.enter(Let{t, var(i) * Expr(3) + 1, block({})});
  expect_range(r.of(var(t)), 7, 28);
  expect_range(r.of(var(t) - var(i)), 5, 19);
  r.enter(loop_of(k, var(i), Expr(4)));
  expect_range(r.of(var(k)), 2, 12);
  EXPECT_EQ(r.proves(var(k) < var(i) + 4), true);
  EXPECT_EQ(r.proves(var(k) < var(i)), false);
  EXPECT_EQ(r.proves(var(k) < var(i) + 3), std::nullopt);
  Buffer idx = in_buffer("idx", DType::i32, {.min = Expr(0), .max = Expr(7)});
  expect_range(r.of(cast(DType::i64, load(idx, {var(i)})) + 1), 1, 8);
}

TEST(Ranges, SymbolicComparisons) {
  Ranges r;
  Var n = index_var("n"), m = index_var("m"), i = index_var("i"), j = index_var("j");
  r.set(n.id, {0, {}});
  r.set(m.id, {0, INT64_MAX - 1});
  Expr N = var(n), I = var(i);
  EXPECT_EQ(r.proves(N - 1 < N), true);
  EXPECT_EQ(r.proves(N + 1 <= N), std::nullopt);  // INT64_MAX + 1 wraps
  EXPECT_EQ(r.proves(var(m) + 1 <= var(m)), false);
  EXPECT_EQ(r.proves(N > Expr(-1)), true);
  EXPECT_EQ(r.proves(N > Expr(0)), std::nullopt);
  r.enter(loop_of(i, Expr(0), N));
  EXPECT_EQ(r.proves(I < N), true);
  EXPECT_EQ(r.proves(N > Expr(0)), true);  // the body runs
  EXPECT_EQ(r.proves(I + 1 < N), std::nullopt);
  EXPECT_EQ(r.proves(I == N), false);
  Ranges::Mark mark = r.mark();
  r.assume(I < N - 3);
  EXPECT_EQ(r.proves(I + 4 <= N), true);
  EXPECT_EQ(r.proves(I + 5 <= N), std::nullopt);
  r.restore(mark);
  EXPECT_EQ(r.proves(I + 4 <= N), std::nullopt);
  r.enter(loop_of(j, I, min(Expr(32), N - I)));
  EXPECT_EQ(r.proves(var(j) < N), true);
  EXPECT_EQ(r.proves(var(j) >= I), true);
  EXPECT_EQ(r.proves(var(j) < I + 31), std::nullopt);
}

TEST(Ranges, SplitStaysInside) {
  Ranges r;
  Var n = index_var("n"), io = index_var("io"), ii = index_var("ii");
  r.set(n.id, {0, {}});
  Expr N = var(n);
  r.enter(loop_of(io, Expr(0), floor_div(N, Expr(32))));
  r.enter(loop_of(ii, Expr(0), Expr(32)));
  Expr i = var(io) * Expr(32) + var(ii);
  EXPECT_EQ(r.proves(i < N), true);
  EXPECT_EQ(r.proves(i + 1 < N), std::nullopt);
  Ranges up;
  up.set(n.id, {0, {}});
  up.enter(loop_of(io, Expr(0), floor_div(N + 31, Expr(32))));
  up.enter(loop_of(ii, Expr(0), Expr(32)));
  EXPECT_EQ(up.proves(i < N), std::nullopt);
  EXPECT_EQ(up.proves(i < N + 31), true);
}

TEST(Ranges, Guards) {
  Ranges r;
  Buffer idx = in_buffer("idx", DType::i64);
  Var k = index_var("k"), n = index_var("n");
  r.set(n.id, {1, 50});
  r.enter(Let{k, load(idx, {Expr(0)}), block({})});
  Expr K = var(k), N = var(n);
  EXPECT_EQ(r.proves(K + 1 > K), std::nullopt);  // from memory, unbounded: may wrap
  r.assume((K >= Expr(0) - N) & (N > K));
  expect_range(r.of(K), -50, 49);
  EXPECT_EQ(r.proves(K + 1 > K), true);
  EXPECT_EQ(r.proves(K + N >= Expr(0)), true);
  Ranges::Mark mark = r.mark();
  r.assume(K < Expr(0));
  EXPECT_EQ(r.proves(K + N < N), true);
  r.restore(mark);
  r.assume(unary(UnaryOp::bit_not, K < Expr(0)));
  expect_range(r.of(K), 0, 49);
  r.assume(K != Expr(0));
  expect_range(r.of(K), 1, 49);
  r.assume(K == Expr(7));
  EXPECT_EQ(r.proves(K * Expr(2) == Expr(14)), true);
}

TEST(Ranges, ArithmeticOnUntrustedMemoryProvesNothing) {
  Ranges r;
  Buffer idx = in_buffer("idx", DType::i64);
  Var k = index_var("k");
  r.enter(Let{k, load(idx, {Expr(0)}), block({})});
  r.assume(var(k) + 5 < Expr(10));  // holds for INT64_MAX as well, which wraps
  EXPECT_EQ(r.proves(var(k) < Expr(5)), std::nullopt);
}

TEST(Ranges, OpaqueConditionsAreRemembered) {
  Ranges r;
  Buffer x = in_buffer("x", DType::f32);
  Expr c = load(x, {Expr(0)}) < constant(DType::f32, 1);
  EXPECT_EQ(r.proves(c), std::nullopt);
  r.assume(c);
  EXPECT_EQ(r.proves(c), true);
  Buffer t = make_buffer({.name = "t", .dims = {Expr(100)}, .role = Role::temp});
  Expr changing = load(t, {Expr(0)}) < constant(DType::f32, 1);
  r.assume(changing);
  EXPECT_EQ(r.proves(changing), std::nullopt);  // a store may intervene
}

TEST(Ranges, FloorDivAndModTogether) {
  Ranges r;
  Var f = index_var("f");
  r.enter(loop_of(f, Expr(0), Expr(600)));
  Expr F = var(f), i = floor_div(F, Expr(20)), j = floor_mod(F, Expr(20));
  expect_range(r.of(i), 0, 29);
  EXPECT_EQ(r.proves(i * Expr(20) + j == F), true);
  EXPECT_EQ(r.proves(i * Expr(20) + j == F + 1), false);
}

TEST(Ranges, VectorConditionsHoldInEveryLane) {
  Ranges r;
  Var i = index_var("i");
  r.enter(loop_of(i, Expr(0), Expr(4)));
  Expr lanes = ramp(var(i) * Expr(8), Expr(1), 8);
  EXPECT_EQ(r.proves(lanes < Expr(32)), true);
  EXPECT_EQ(r.proves(lanes < Expr(31)), std::nullopt);
  EXPECT_EQ(r.proves(lanes < Expr(0)), false);
}

TEST(Ranges, UnsignedValuesAboveI64) {
  Ranges r;
  Expr big = constant_bits(DType::u64, ~uint64_t{0}), small = constant_int(DType::u64, 3);
  EXPECT_NE(r.proves(big < small), true);
  EXPECT_NE(r.proves(small > big), true);
  Var v = make_var("v", {DType::u64, 1});
  EXPECT_EQ(r.proves(var(v) >= constant_int(DType::u64, 0)), true);
}

TEST(Ranges, WhatMayWrapIsComparedAsItIs) {
  Ranges r;
  Expr s = exact_range(r, "s", 0, INT64_MAX), e = s * Expr(2);
  EXPECT_EQ(r.proves(e >= Expr(0)), std::nullopt);
  EXPECT_EQ(r.proves(min(s + 8, s) == s), std::nullopt);
  r.assume((e >= Expr(0)) & (e < Expr(8)));
  expect_range(r.of(e), 0, 7);
  EXPECT_EQ(r.proves(e <= Expr(7)), true);
  EXPECT_EQ(r.proves(s < Expr(4)), std::nullopt);  // 2^63 + 3 times 2 is 6 as well
  EXPECT_TRUE(r.fits(r.form(e + 1)));              // as one term
}

TEST(Ranges, ProductsOfFarCoefficients) {
  Ranges r;
  Expr i = exact_range(r, "i", 0, 3), s = exact_range(r, "s", INT64_MIN, INT64_MAX),
       t = exact_range(r, "t", INT64_MIN, INT64_MAX);
  EXPECT_EQ(r.proves(i * Expr(int64_t{1} << 62) > Expr(5)), std::nullopt);
  EXPECT_EQ(r.proves(i * Expr(int64_t{1} << 61) >= Expr(0)), true);
  r.assume(t > s);
  EXPECT_EQ(r.proves(s * Expr(INT64_MIN) + t > Expr(0)), std::nullopt);
  expect_range(r.of(floor_div(i - Expr(INT64_MAX), Expr(10))), -922337203685477581, -922337203685477581);
}

TEST(Ranges, ALoopMayPassTheLargestNumber) {
  Ranges r;
  Var i = index_var("i"), j = index_var("j");
  Expr n = exact_range(r, "n", 0, INT64_MAX), m = exact_range(r, "m", 0, INT64_MAX - 4);
  r.enter(loop_of(i, n, Expr(5)));
  r.enter(loop_of(j, m, Expr(5)));
  EXPECT_EQ(r.proves(var(i) >= n), std::nullopt);
  expect_range(r.of(var(i)), {}, {});
  EXPECT_EQ(r.proves(var(j) >= m), true);
  EXPECT_EQ(r.proves(var(j) - m < Expr(5)), true);
}

TEST(Ranges, CodeThatNeverRunsHasNoValues) {
  Ranges r;
  Expr n = exact_range(r, "n", 0, 23), e = Expr(0) - (n + n);
  r.assume(e > Expr(0));
  const Range none = r.of(floor_div(Expr(4), n));
  EXPECT_TRUE(none.min && none.max && *none.min > *none.max);
  EXPECT_EQ(r.proves(n == Expr(1000)), true);  // vacuously true
  Var i = index_var("i");
  r.enter(loop_of(i, Expr(0), Expr(-3)));
  EXPECT_EQ(r.proves(var(i) == Expr(7)), true);
}

TEST(Ranges, WhatWrapsEquallyOftenStaysAnInterval) {
  Ranges r;
  Expr s = exact_range(r, "s", INT64_MAX - 2, INT64_MAX);
  expect_range(r.of(s * 8 * 5), -120, -40);
  expect_range(r.of(s + 4), INT64_MIN + 1, INT64_MIN + 3);
  expect_range(r.of(s + 2), {}, {});  // some wrap, some do not
  expect_range(r.of(cast(DType::u8, s)), 253, 255);
  expect_range(r.of(cast(DType::i8, s)), -3, -1);
  expect_range(r.of(cast(DType::i8, s + s)), -6, -2);
}

TEST(Ranges, SidesFurtherApartThanALinearHolds) {
  Ranges r;
  const Expr s = exact_range(r, "s", -24, -6), far = Expr(INT64_MAX - 5);
  EXPECT_EQ(r.proves(s * 2 - 6 > far), false);
  EXPECT_EQ(r.proves(s * 2 - 6 <= far), true);
  EXPECT_EQ(r.proves(s * 2 - 6 == far), false);
  EXPECT_EQ(r.proves(s * 2 - 6 != far), true);
  EXPECT_EQ(r.proves(s * 2 - 6 < Expr(-18)), std::nullopt);
  EXPECT_FALSE(r.never());
  Ranges::Scope scope(r, s * 2 - 6 >= far);
  EXPECT_TRUE(r.never());
}

TEST(Ranges, CoefficientsThatWrapMeanWhatTheyAreModulo) {
  Ranges r;
  const Expr i = exact_range(r, "i", 0, 31), smallest = Expr(INT64_MIN);
  expect_range(r.of(smallest + i - smallest), 0, 31);
  expect_range(r.of(i * (int64_t{1} << 62) * 4 + i), 0, 31);
  EXPECT_EQ(r.proves(smallest + i - smallest < Expr(32)), true);
  expect_range(r.of(i + 1 - smallest), INT64_MIN + 1, INT64_MIN + 32);
}

TEST(Ranges, LaunchesBoundDims) {
  KernelBuilder b("k");
  Expr n = b.scalar("n"), m = b.scalar("m"), k = b.scalar("k");
  b.input("x", DType::f32, {n, m});
  b.output("y", DType::f32, {k});
  const Kernel kernel = b.build();
  const Ranges r(kernel);
  expect_range(r.of(n), 0, max_elements);
  expect_range(r.of(n * m), 0, max_elements);
  expect_range(r.of(floor_div(n + 15, Expr(16)) * max(floor_div(m * Expr(3) + 63, Expr(64)), Expr(1))), 0,
               3 * max_elements);
  expect_range(r.of(n * n), {}, {});
  expect_range(r.of(n * k), {}, {});
  EXPECT_EQ(r.proves(n * m + 255 > n * m), true);
}

TEST(Ranges, AComparisonOfBroadcastsIsThatOfOneLane) {
  Ranges r;
  Expr s = exact_range(r, "s", -5, 5);
  r.assume(unary(UnaryOp::bit_not, broadcast(s, 8) == broadcast(Expr(0), 8)));
  EXPECT_EQ(r.proves(s != Expr(0)), true);
  EXPECT_EQ(r.proves(broadcast(s, 4) != broadcast(Expr(0), 4)), true);
}

TEST(KnownMultiple, Divisibility) {
  Ranges r;
  Var i = index_var("i"), t = index_var("t");
  r.enter(loop_of(i, Expr(0), Expr(10)));
  Expr I = var(i);
  EXPECT_EQ(known_multiple(I, r), 1);
  EXPECT_EQ(known_multiple(I * Expr(48), r), 16);
  EXPECT_EQ(known_multiple(I * Expr(48) + 8, r), 8);
  EXPECT_EQ(known_multiple(floor_div(I * Expr(48), Expr(4)), r), 4);
  EXPECT_EQ(known_multiple(min(I * Expr(8), Expr(36)), r), 4);
  EXPECT_EQ(known_multiple((I * Expr(4)) * (I * Expr(2)), r), 8);
  EXPECT_EQ(known_multiple(Expr(0), r), int64_t{1} << 62);
  EXPECT_EQ(known_multiple(Expr(-24), r), 8);
  EXPECT_EQ(known_multiple(ramp(I * Expr(16), Expr(4), 4), r), 4);
  r.enter(Let{t, I * Expr(32), block({})});
  EXPECT_EQ(known_multiple(var(t) + 16, r), 16);
}

TEST(Linear, NormalForm) {
  Var i = index_var("i"), j = index_var("j");
  Expr I = var(i), J = var(j);
  Linear l = linear((I + 3) * Expr(4) - (J - I) - 12);
  EXPECT_EQ(l.constant, 0);
  EXPECT_EQ(l.coefficient(I), 5);
  EXPECT_EQ(l.coefficient(J), -1);
  EXPECT_TRUE(equal(to_expr(l), I * Expr(5) - J));
  Linear lanes = linear(ramp(I, Expr(2), 4) + Expr(1));
  EXPECT_TRUE(equal(to_expr(lanes), ramp(I + 1, Expr(2), 4)));
  EXPECT_FALSE(linear(I * Expr(INT64_MAX) * Expr(3)).exact);
}

}  // namespace
}  // namespace gradloom::ir
