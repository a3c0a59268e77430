// Evaluation outside kernels equals the interpreter, for every operator and dtype; expressions without a value are
// detected.
#include "ir/scalar_program.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "gradloom/text.h"
#include "ir/interpret/interpret.h"
#include "ir/scalar_math.h"

namespace gradloom::ir {
namespace {

const DType dtypes[] = {DType::boolean, DType::i8,  DType::u8,  DType::i16,  DType::u16, DType::i32, DType::u32,
                        DType::i64,     DType::u64, DType::f16, DType::bf16, DType::f32, DType::f64};

std::vector<Scalar> scalars() {
  std::vector<Scalar> list;
  for (const DType t : dtypes)
    for (const char* name : {"a", "b"}) list.push_back({make_var(std::string(name) + to_string(t), {t, 1}), {}, {}});
  return list;
}

class RandomExpr {
 public:
  RandomExpr(const std::vector<Scalar>& s, uint64_t seed) : scalars_(s), random_(seed) {}
  int pick(int n) { return static_cast<int>(random_() % static_cast<uint64_t>(n)); }
  DType any() { return dtypes[pick(dtype_count)]; }
  Expr of(DType t, int depth) {
    if (depth == 0 || pick(8) == 0) return leaf(t);
    const auto next = [&](DType u) { return of(u, depth - 1); };
    switch (pick(6)) {
      case 0:
        return cast(t, next(any()));
      case 1:
        return select(next(DType::boolean), next(t), next(t));
      case 2:
        for (const DType u : dtypes)
          if (u != t && t != DType::boolean && u != DType::boolean && size_of(u) == size_of(t) && pick(2))
            return bitcast(t, next(u));
        return leaf(t);
      case 3:
        if (t == DType::f32 || t == DType::f64) return fma(next(t), next(t), next(t));
        return binary_of(t, depth);
      case 4:
        return unary_of(t, next(t));
      default:
        return binary_of(t, depth);
    }
  }

 private:
  Expr leaf(DType t) {
    if (pick(3) == 0)
      return constant_bits(t, eval_cast(DType::i64, t, static_cast<uint64_t>(static_cast<int64_t>(pick(9)) - 4)));
    return var(scalars_[static_cast<size_t>(2 * static_cast<int>(t) + pick(2))].var);
  }
  Expr unary_of(DType t, const Expr& a) {
    if (t == DType::boolean) return unary(UnaryOp::bit_not, a);
    if (is_storage_float(t)) return a;
    constexpr UnaryOp of_ints[] = {UnaryOp::neg, UnaryOp::bit_not, UnaryOp::abs};
    constexpr UnaryOp of_floats[] = {UnaryOp::neg,   UnaryOp::abs,  UnaryOp::sqrt,
                                     UnaryOp::floor, UnaryOp::ceil, UnaryOp::trunc};
    return unary(is_float(t) ? of_floats[pick(6)] : of_ints[pick(3)], a);
  }
  Expr binary_of(DType t, int depth) {
    const auto next = [&](DType u) { return of(u, depth - 1); };
    if (t == DType::boolean && pick(2)) {
      const DType u = any();
      if (u == DType::boolean) return binary(pick(2) ? BinaryOp::eq : BinaryOp::ne, next(u), next(u));
      if (!is_storage_float(u))
        return binary(static_cast<BinaryOp>(static_cast<int>(BinaryOp::eq) + pick(6)), next(u), next(u));
    }
    if (t == DType::boolean)
      return binary(static_cast<BinaryOp>(static_cast<int>(BinaryOp::bit_and) + pick(3)), next(t), next(t));
    if (is_storage_float(t)) return leaf(t);
    constexpr BinaryOp of_floats[] = {BinaryOp::add, BinaryOp::sub, BinaryOp::mul,
                                      BinaryOp::div, BinaryOp::min, BinaryOp::max};
    if (is_float(t)) return binary(of_floats[pick(6)], next(t), next(t));
    constexpr BinaryOp of_ints[] = {BinaryOp::add, BinaryOp::sub,     BinaryOp::mul,       BinaryOp::min,
                                    BinaryOp::max, BinaryOp::bit_and, BinaryOp::bit_or,    BinaryOp::bit_xor,
                                    BinaryOp::shl, BinaryOp::shr,     BinaryOp::floor_div, BinaryOp::floor_mod};
    const BinaryOp op = of_ints[pick(12)];
    if (op == BinaryOp::shl || op == BinaryOp::shr)
      return binary(op, next(t), next(t) & constant_int(t, 8 * size_of(t) - 1));
    if (op == BinaryOp::floor_div || op == BinaryOp::floor_mod)
      return binary(op, next(t), next(t) | constant_int(t, 1));
    return binary(op, next(t), next(t));
  }

  const std::vector<Scalar>& scalars_;
  std::mt19937_64 random_;
};

TEST(ScalarProgram, MeansWhatTheInterpreterSays) {
  const std::vector<Scalar> list = scalars();
  const auto slot_of = [&](const Var& v) {
    return std::find_if(list.begin(), list.end(), [&](const Scalar& s) { return s.var.id == v.id; }) - list.begin();
  };
  std::mt19937_64 random(3);
  const int64_t limits[] = {0,     1,          -1,        127,       -128,          255,
                            32767, 2147483647, INT64_MAX, INT64_MIN, INT64_MAX - 2, INT64_MIN + 1};
  for (uint64_t seed = 1; seed <= 4000; ++seed) {
    RandomExpr make(list, seed);
    const DType t = make.any();
    Kernel kernel{.name = "k",
                  .scalars = list,
                  .buffers = {make_buffer({.name = "y", .dtype = t, .dims = {1}, .role = Role::out})},
                  .body = {}};
    const Expr e = make.of(t, 5);
    kernel.body = store(kernel.buffers[0], {0}, e);
    std::vector<int64_t> values;
    for (size_t i = 0; i < list.size(); ++i)
      values.push_back(random() % 2 ? limits[random() % 12] : static_cast<int64_t>(random()));
    uint64_t want = 0;
    void* const place = &want;
    interpret(kernel, std::span(&place, 1), values);
    const ScalarProgram program = scalar_program(e, slot_of);
    ASSERT_TRUE(is_well_formed(program, static_cast<int64_t>(list.size())));
    const std::optional<uint64_t> got = evaluate(program, values);
    ASSERT_TRUE(got) << print(e);
    if (is_float(t) && std::isnan(double_from_bits(t, want)) && std::isnan(double_from_bits(t, *got))) continue;
    ASSERT_EQ(*got, want) << "seed " << seed << ": " << print(e);
  }
}

TEST(ScalarProgram, WhatHasNoValue) {
  const Var n = make_var("n"), m = make_var("m");
  const auto value = [&](const Expr& e, int64_t a, int64_t b, Overflow overflow) {
    const int64_t slots[] = {a, b};
    return evaluate(scalar_program(e, [&](const Var& v) { return v.id == n.id ? 0 : 1; }), slots, overflow);
  };
  constexpr int64_t most = INT64_MAX, least = INT64_MIN;
  const Expr a = var(n), b = var(m);
  const struct {
    Expr e;
    int64_t a, b;
    std::optional<uint64_t> wraps, exact;
  } cases[] = {
      {floor_div(a, b), 5, 0, {}, {}},
      {floor_mod(a, b), 5, 0, {}, {}},
      {binary(BinaryOp::shl, a, b), 1, 64, {}, {}},
      {binary(BinaryOp::shr, a, b), 1, -1, {}, {}},
      {select(b == 0, a, floor_div(a, b)), 5, 0, 5u, 5u},
      {a + b, most, 1, static_cast<uint64_t>(least), {}},
      {a - b, least, 1, static_cast<uint64_t>(most), {}},
      {a * b, most, 2, static_cast<uint64_t>(-2), {}},
      {floor_div(a, b), least, -1, static_cast<uint64_t>(least), {}},
      {unary(UnaryOp::neg, a), least, 0, static_cast<uint64_t>(least), {}},
      {unary(UnaryOp::abs, a), least, 0, static_cast<uint64_t>(least), {}},
      {binary(BinaryOp::shl, a, b), 3, 62, uint64_t{3} << 62, {}},
      {binary(BinaryOp::shl, a, b), -1, 63, uint64_t{1} << 63, uint64_t{1} << 63},
      {select(a > 0, b, a * b), most, 2, 2u, 2u},
      {min(a * b, 7), most, 2, static_cast<uint64_t>(-2), {}},
  };
  for (const auto& c : cases) {
    EXPECT_EQ(value(c.e, c.a, c.b, Overflow::wraps), c.wraps) << print(c.e) << " of " << c.a << ", " << c.b;
    EXPECT_EQ(value(c.e, c.a, c.b, Overflow::has_no_value), c.exact) << print(c.e) << " of " << c.a << ", " << c.b;
  }
}

TEST(ScalarProgram, WhatIsNoneIsRefused) {
  const Buffer x = make_buffer({.name = "x", .dtype = DType::i64, .dims = {4}});
  const auto no_slot = [](const Var&) { return int64_t{0}; };
  for (const Expr& e : {load(x, {0}), extract(ramp(0, 1, 4), 2), all_lanes(ramp(0, 1, 4) > 2)}) {
    EXPECT_FALSE(is_scalar_arithmetic(e)) << print(e);
    EXPECT_THROW(scalar_program(e, no_slot), Error) << print(e);
  }
  const ScalarCode one{ScalarCode::constant, 1},
      add{.op = ScalarCode::binary, .what = static_cast<uint8_t>(BinaryOp::add)};
  EXPECT_TRUE(is_well_formed({one, one, add}, 0));
  for (const ScalarProgram& p :
       std::vector<ScalarProgram>{{},
                                  {one, add},
                                  {one, one},
                                  {{ScalarCode::slot, 2}},
                                  {{ScalarCode::slot, -1}},
                                  {one, {.op = ScalarCode::unary, .what = 99}},
                                  {one, one, {.op = ScalarCode::binary, .what = 99}},
                                  {one, {.op = ScalarCode::cast, .what = dtype_count}},
                                  {{ScalarCode::constant, 1, static_cast<DType>(dtype_count)}}})
    EXPECT_FALSE(is_well_formed(p, 2));
}

}  // namespace
}  // namespace gradloom::ir
